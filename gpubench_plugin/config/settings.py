"""Settings from command line options and ini keys, validated and frozen."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpubench_plugin.config.options import FLAGS, INI, option_dest
from gpubench_plugin.config.table_options import TableOptions
from gpubench_plugin.core import catalog
from gpubench_plugin.core.errors import UsageProblem, invalid_choice

if TYPE_CHECKING:
    import pytest

PRESETS: Final = ("auto", "tiny", "full")
GATES: Final = ("auto", "history", "threshold")
POLICIES: Final = ("pass", "fail")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a session.

    Empty `precisions` select those of the benchmark's ``precision`` mark, else
    `default_precisions`; empty `world_sizes` those of its ``ranks``. `results_dir` is absolute.
    `resume` and `baseline` name a run, or are empty. `registry` is the URL of a database, ``none``,
    or empty for the default one. `gate` is empty without ``--gate``.
    """

    precisions: tuple[str, ...]
    default_precisions: tuple[str, ...]
    devices: tuple[str, ...]
    world_sizes: tuple[int, ...]
    launches: int
    isolate: bool
    resume: str
    timeout_s: float
    preset: str
    configs: tuple[Path, ...]
    overrides: tuple[str, ...]
    results_dir: Path
    experiment: str
    tag: str
    profile: bool
    registry: str
    baseline: str
    gate: str
    gate_missing: str
    gate_inconclusive: str
    allow_incomparable: bool
    table: TableOptions

    @classmethod
    def from_config(cls, config: pytest.Config) -> Settings:
        """Read and validate the settings of a session.

        Raises:
            UsageProblem: an option has an invalid value.
        """
        flags = {name: config.getoption(option_dest(name)) for name in FLAGS}
        option_values = {
            name: config.getini(option_dest(name)) if flags.get(name) is None else flags[name]
            for name in INI
        }
        invocation_dir = config.invocation_params.dir
        if not option_values["results-dir"]:
            raise UsageProblem("--results-dir=: empty; allowed: a folder")
        if flags["resume"] == "":
            raise UsageProblem("--resume=: empty; allowed: a run's folder, id or id prefix")
        return cls(
            precisions=()
            if flags["precision"] is None
            else _precisions("--precision", flags["precision"]),
            default_precisions=_precisions(
                "gpubench_precision", config.getini(option_dest("precision"))
            ),
            devices=_names("--device", option_values["device"]),
            world_sizes=_world_sizes(flags["world-size"]),
            launches=_positive_int("--launches", flags["launches"] or "1"),
            isolate=bool(flags["isolate"]),
            resume=flags["resume"] or "",
            timeout_s=_positive_seconds("gpubench_timeout_s", option_values["timeout-s"]),
            preset=_choice("--preset", option_values["preset"], PRESETS),
            configs=tuple(invocation_dir / path for path in flags["config"] or ()),
            overrides=tuple(flags["set"] or ()),
            results_dir=(config.rootpath if flags["results-dir"] is None else invocation_dir)
            / option_values["results-dir"],
            experiment=option_values["experiment"],
            tag=flags["tag"] or "",
            profile=bool(flags["profile"]),
            registry=option_values["registry"] or os.environ.get("GPUBENCH_REGISTRY", ""),
            table=TableOptions.parse(
                option_values["table"],
                sort=option_values["table-sort"],
                group_by=option_values["table-group-by"],
            ),
            **_gate_settings(flags, option_values["baseline"]),
        )


def _gate_settings(flags: Mapping[str, Any], baseline: str) -> dict[str, Any]:
    """Gate settings; `baseline` may come from the ini file."""
    gate = flags["gate"]
    if flags["baseline"] == "":
        raise UsageProblem(
            "--baseline=: empty; allowed: a baseline's name, last, a run (name or folder), "
            "or a file"
        )
    if gate is not None and not baseline:
        _choice("--gate", gate, GATES)
        raise UsageProblem(
            "--gate: no baseline to compare with; set --baseline=<name, run or file>"
        )
    policies = {name: flags[name] or "pass" for name in ("gate-missing", "gate-inconclusive")}
    return {
        "baseline": baseline,
        "gate": "" if gate is None else _choice("--gate", gate, GATES),
        "allow_incomparable": bool(flags["allow-incomparable"]),
        **{n.replace("-", "_"): _choice(f"--{n}", v, POLICIES) for n, v in policies.items()},
    }


def _choice(key: str, value: str, allowed: Iterable[str]) -> str:
    """`value`, if it is `allowed`."""
    if value not in allowed:
        raise invalid_choice(key, value, allowed)
    return value


def _names(key: str, text: str) -> tuple[str, ...]:
    """Unique comma-separated names in `text`."""
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise UsageProblem(f"{key}={text}: an empty name in the list")
    return tuple(dict.fromkeys(names))


def _world_sizes(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    sizes = _names("--world-size", text)
    return tuple(_positive_int(f"--world-size={text}", size) for size in sizes)


def _positive_int(key: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise UsageProblem(f"{key}: {text!r} is not a positive integer")
    return int(text)


def _positive_seconds(key: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise UsageProblem(f"{key}={text}: not a positive number of seconds")
    return seconds


def _precisions(key: str, text: str) -> tuple[str, ...]:
    names, allowed = _names(key, text), catalog.choices("precision")
    for name in names:
        if name not in allowed:
            raise invalid_choice(key, name, allowed, aliases=catalog.aliases("precision"))
    return names
