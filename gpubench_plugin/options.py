"""Flags and ini keys, folded into one frozen :class:`Settings`.

Only ``--gpubench-<name>`` is registered: a short name such as ``--precision`` may belong to
another plugin or a project's conftest. ``arguments.py`` lends the short names where they are free.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from gpubench_plugin import catalog
from gpubench_plugin.errors import UsageProblem, not_one_of

SECTIONS: Final = (
    "experiment",
    "model",
    "data",
    "training",
    "precision",
    "distributed",
    "measure",
    "profiling",
)
"""The sections of a configuration, known here without importing the schema."""

PRESETS: Final = ("auto", "tiny", "full")

_FLAGS: Final[dict[str, dict[str, str]]] = {
    "precision": {
        "metavar": "NAMES",
        "help": "Precisions to measure, comma-separated: fp32, tf32, amp, bf16, fp16-true, …",
    },
    "device": {
        "metavar": "NAMES",
        "help": "Devices to measure, comma-separated: auto, cpu, cuda, cuda:1, mps, xpu",
    },
    "preset": {"metavar": "NAME", "help": "Size of the workloads: auto, tiny, full"},
    "config": {
        "metavar": "FILE",
        "action": "append",
        "help": "YAML file laid over the configurations, or a folder searched first; repeatable",
    },
    "set": {
        "metavar": "KEY=VALUE",
        "action": "append",
        "help": "One key of the configuration, e.g. training.batch_size=64; repeatable. "
        "Short form: --training.batch_size=64",
    },
    "results-dir": {"metavar": "DIR", "help": "Where runs are written (default: results)"},
    "experiment": {"metavar": "NAME", "help": "Folder of related runs (default: default)"},
    "tag": {"metavar": "NAME", "help": "Part of the run's name (default: run)"},
    "profile": {
        "action": "store_true",
        "help": "Trace a few extra steps of each benchmark with torch.profiler",
    },
}

SHORT_NAMES: Final = tuple(_FLAGS)
"""The names that ``--<name>`` may stand for, without the leading dashes."""

_INI: Final = {
    "precision": ("fp32", "Precisions measured when --precision is not given"),
    "device": ("auto", "Devices measured when --device is not given"),
    "preset": ("auto", "Preset used when --preset is not given"),
    "results-dir": ("results", "Folder of the runs, relative to the rootdir"),
    "experiment": ("default", "Experiment used when --experiment is not given"),
}


def add_options(parser: pytest.Parser) -> None:
    """Register the flags and ini keys."""
    group = parser.getgroup("gpubench", "GPU benchmarks (gpubench)")
    for name, attributes in _FLAGS.items():
        group.addoption(f"--gpubench-{name}", dest=_dest(name), **attributes)  # type: ignore[arg-type] # a dict of keywords
    for name, (default, text) in _INI.items():
        parser.addini(_dest(name), text, default=default)


def is_asked_for(config: pytest.Config) -> bool:
    """Whether a flag is given or an ini key differs from its default."""
    return any(config.getoption(_dest(name)) for name in _FLAGS) or any(
        config.getini(_dest(name)) != default for name, (default, _) in _INI.items()
    )


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
        flags = {name: config.getoption(_dest(name)) for name in _FLAGS}
        chosen = {name: flags[name] or config.getini(_dest(name)) for name in _INI}
        here = config.invocation_params.dir
        if chosen["preset"] not in PRESETS:
            raise not_one_of("--preset", chosen["preset"], PRESETS)
        return cls(
            precisions=_precisions("--precision", flags["precision"]) if flags["precision"] else (),
            default_precisions=_precisions("gpubench_precision", config.getini(_dest("precision"))),
            devices=_names("--device", chosen["device"]),
            preset=chosen["preset"],
            configs=tuple(here / path for path in flags["config"] or ()),
            overrides=tuple(flags["set"] or ()),
            results_dir=here / flags["results-dir"]
            if flags["results-dir"]
            else config.rootpath / chosen["results-dir"],
            experiment=chosen["experiment"],
            tag=flags["tag"] or "",
            profile=bool(flags["profile"]),
        )


SETTINGS = pytest.StashKey[Settings]()


def _dest(name: str) -> str:
    return f"gpubench_{name.replace('-', '_')}"


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
