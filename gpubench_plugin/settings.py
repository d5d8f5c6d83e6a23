"""What the flags and ini keys ask for, checked and frozen."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from gpubench_plugin import catalog
from gpubench_plugin.errors import UsageProblem, not_one_of
from gpubench_plugin.options import FLAGS, INI, destination

PRESETS: Final = ("auto", "tiny", "full")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the flags and ini keys ask for.

    `precisions` is empty where the benchmark decides: then `default_precisions` apply unless the
    benchmark carries a ``precision`` mark. `results_dir` is absolute.
    """

    precisions: tuple[str, ...]
    default_precisions: tuple[str, ...]
    devices: tuple[str, ...]
    preset: str
    configs: tuple[Path, ...]
    overrides: tuple[str, ...]
    results_dir: Path
    experiment: str
    tag: str
    profile: bool

    @classmethod
    def from_config(cls, config: pytest.Config) -> Settings:
        """The settings of a session.

        Raises:
            UsageProblem: a precision or preset is unknown, or a list is empty.
        """
        flags = {name: config.getoption(destination(name)) for name in FLAGS}
        chosen = {
            name: config.getini(destination(name)) if flags[name] is None else flags[name]
            for name in INI
        }
        here = config.invocation_params.dir
        if not chosen["results-dir"]:
            raise UsageProblem("--results-dir=: empty; allowed: a folder")
        if chosen["preset"] not in PRESETS:
            raise not_one_of("--preset", chosen["preset"], PRESETS)
        return cls(
            precisions=()
            if flags["precision"] is None
            else _precisions("--precision", flags["precision"]),
            default_precisions=_precisions(
                "gpubench_precision", config.getini(destination("precision"))
            ),
            devices=_names("--device", chosen["device"]),
            preset=chosen["preset"],
            configs=tuple(here / path for path in flags["config"] or ()),
            overrides=tuple(flags["set"] or ()),
            results_dir=(config.rootpath if flags["results-dir"] is None else here)
            / chosen["results-dir"],
            experiment=chosen["experiment"],
            tag=flags["tag"] or "",
            profile=bool(flags["profile"]),
        )


SETTINGS = pytest.StashKey[Settings]()


def _names(key: str, text: str) -> tuple[str, ...]:
    """The comma-separated names in `text`, each once."""
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise UsageProblem(f"{key}={text}: an empty name in the list")
    return tuple(dict.fromkeys(names))


def _precisions(key: str, text: str) -> tuple[str, ...]:
    allowed = catalog.choices("precision")
    names = _names(key, text)
    for name in names:
        if name not in allowed:
            raise not_one_of(key, name, allowed)
    return names
