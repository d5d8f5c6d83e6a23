"""Command line options, ini keys and marks; ``settings.py`` turns them into settings.

Only ``--gpubench-<name>`` is registered: a short name such as ``--precision`` may belong to another
plugin or a project's conftest. :func:`expand_short_names` lends the short names where they are
free.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest


SECTIONS: Final = (
    "experiment",
    "model",
    "data",
    "training",
    "precision",
    "distributed",
    "measure",
    "profiling",
    "gate",
    "moe",
    "diffusion",
    "micro",
    "inference",
)
"""The sections of a configuration, known here without importing the schema."""

FLAGS: Final[dict[str, dict[str, str]]] = {
    "precision": {
        "metavar": "NAMES",
        "help": "Precisions to measure, comma-separated: fp32, tf32, amp, bf16, fp16-true, …",
    },
    "device": {
        "metavar": "NAMES",
        "help": "Devices to measure, comma-separated: auto, cpu, cuda, cuda:1, mps, xpu",
    },
    "world-size": {
        "metavar": "SIZES",
        "help": "Numbers of ranks to measure on, comma-separated: 1,2,4. Several ranks run in a "
        "gang of processes that pytest starts (default: what each benchmark's `ranks` asks for)",
    },
    "launches": {
        "metavar": "K",
        "help": "Measure each benchmark in K fresh processes per rank (default: 1)",
    },
    "isolate": {
        "action": "store_true",
        "help": "A fresh process per rank for each benchmark",
    },
    "resume": {
        "metavar": "RUN",
        "help": "Go on with an interrupted run: its folder, its id or the id's beginning",
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
    "registry": {
        "metavar": "URL",
        "help": "Database that indexes the runs: a SQLAlchemy URL, or none (default: the file "
        "registry.sqlite in the folder of the runs)",
    },
    "adopt": {
        "action": "store_true",
        "help": "Record, compare and gate tests written for pytest-benchmark, too",
    },
    "baseline": {
        "metavar": "RUN",
        "help": "Compare with a baseline's name, a run, its folder, or a file of pytest-benchmark; "
        "last: with the last comparable run of this machine",
    },
    "gate": {
        "metavar": "KIND",
        "help": "Fail where a benchmark got worse than its limit. --gate: by history where the "
        "baseline has one; --gate=history or --gate=threshold",
    },
    "gate-missing": {
        "metavar": "VERDICT",
        "help": "What the gate says of a benchmark without baseline: pass or fail (default: pass)",
    },
    "gate-inconclusive": {
        "metavar": "VERDICT",
        "help": "What the gate says where the numbers cannot tell: pass or fail (default: pass)",
    },
    "allow-incomparable": {
        "action": "store_true",
        "help": "Compare with a baseline of another machine or configuration, and say so",
    },
    "profile": {
        "action": "store_true",
        "help": "Trace a few extra steps of each benchmark with torch.profiler",
    },
}

MARKS: Final = (
    (
        "gpubench(config=None, ranks=1, limits=None, timeout_s=None): a benchmark; `config` names "
        "its configuration, `ranks` the world sizes it runs on (an int, a tuple, 'any' or '>=N')."
    ),
    (
        "gpubench_set(*assignments): keys of the configuration that this case sets, e.g. "
        "'model.channels_last=true'."
    ),
    "precision(*names): the precisions this benchmark offers; --precision chooses among them.",
    (
        "gpubench_full(*precisions): measured on a CPU with --measure.profile=full only; with "
        "arguments, in these precisions."
    ),
)

RUN_FILE: Final = "GPUBENCH_RUN_FILE"
"""The variable that names a file into which the session writes where its run is."""

SHORT_NAMES: Final = tuple(FLAGS)
"""The names that ``--<name>`` may stand for, without the leading dashes."""

INI: Final = {
    "precision": ("fp32", "Precisions measured when --precision is not given"),
    "device": ("auto", "Devices measured when --device is not given"),
    "preset": ("auto", "Preset used when --preset is not given"),
    "results-dir": ("results", "Folder of the runs, relative to the rootdir"),
    "baseline": ("", "What to compare with when --baseline is not given: last, for example"),
    "registry": ("", "Database that indexes the runs when --registry is not given"),
    "timeout-s": ("600", "Seconds after which a benchmark that does not end is a hang"),
    "experiment": ("default", "Experiment used when --experiment is not given"),
}


def add_options(parser: pytest.Parser) -> None:
    """Register options and ini keys."""
    group = parser.getgroup("gpubench", "GPU benchmarks (gpubench)")
    for name, attributes in FLAGS.items():
        group.addoption(f"--gpubench-{name}", dest=option_dest(name), **attributes)
    for name, (default, text) in INI.items():
        parser.addini(option_dest(name), text, default=default)


def is_requested(config: pytest.Config) -> bool:
    """Whether an option is given or an ini key differs from its default."""
    return any(config.getoption(option_dest(name)) not in (None, False) for name in FLAGS) or any(
        config.getini(option_dest(name)) != default for name, (default, _) in INI.items()
    )


def option_dest(name: str) -> str:
    """Attribute name of the option, and name of the ini key."""
    return f"gpubench_{name.replace('-', '_')}"


_CHOICE_OF: Final = {"--gate": "=auto"}
"""What a flag means that may stand alone: argparse would take the next argument for its value."""


def expand_short_names(args: list[str], parser: pytest.Parser) -> None:
    """Expand, in place, short option names and dot keys that no other plugin defines.

    ``--precision=amp`` becomes ``--gpubench-precision=amp`` and ``--training.batch_size=64``
    becomes ``--gpubench-set=training.batch_size=64``; a dot key without ``=`` takes the next
    argument as its value.

    To be run after all plugins and initial conftests have registered their options, so that a
    project's own ``--device`` stays the project's.
    """
    if not any(_is_short(arg) or _is_dot_key(arg) for arg in args):
        return
    # argparse takes an unknown option with a space in its value for a path.
    candidate_args = [_spaceless(arg) for arg in args]
    _, unknown = parser.parse_known_and_unknown_args(candidate_args, argparse.Namespace())
    args[:] = _rewritten(args, frozenset(unknown))


def _rewritten(args: list[str], unknown: frozenset[str]) -> Iterator[str]:
    remaining = iter(args)
    for arg in remaining:
        if _spaceless(arg) not in unknown:
            yield arg
        elif _is_short(arg):
            yield f"--gpubench-{arg[2:]}{_CHOICE_OF.get(arg, '')}"
        elif _is_dot_key(arg):
            assignment = arg[2:] if "=" in arg else f"{arg[2:]}={next(remaining, '')}"
            yield f"--gpubench-set={assignment}"
        else:
            yield arg


def _spaceless(arg: str) -> str:
    return arg.replace(" ", "_") if _is_short(arg) or _is_dot_key(arg) else arg


def _is_short(arg: str) -> bool:
    return arg.startswith("--") and arg[2:].partition("=")[0] in SHORT_NAMES


def _is_dot_key(arg: str) -> bool:
    section, dot, _ = arg[2:].partition("=")[0].partition(".")
    return arg.startswith("--") and bool(dot) and section in SECTIONS
