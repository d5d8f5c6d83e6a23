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
        "help": (
            "World sizes to measure, comma-separated: 1,2,4. Several ranks run as processes "
            "started by pytest (default: the benchmark's `ranks`)"
        ),
    },
    "launches": {
        "metavar": "K",
        "help": "Measure each benchmark in K fresh processes per rank (default: 1)",
    },
    "isolate": {
        "action": "store_true",
        "help": "Run each benchmark in a fresh process per rank",
    },
    "resume": {
        "metavar": "RUN",
        "help": "Resume an interrupted run, given its folder, id or id prefix",
    },
    "preset": {"metavar": "NAME", "help": "Workload preset: auto, tiny, full"},
    "config": {
        "metavar": "FILE",
        "action": "append",
        "help": "YAML file that overrides configurations, or a folder searched first; repeatable",
    },
    "set": {
        "metavar": "KEY=VALUE",
        "action": "append",
        "help": (
            "Set one configuration key, e.g. training.batch_size=64; repeatable. Short form: "
            "--training.batch_size=64"
        ),
    },
    "results-dir": {"metavar": "DIR", "help": "Results directory (default: results)"},
    "experiment": {
        "metavar": "NAME",
        "help": "Experiment, a folder that groups runs (default: default)",
    },
    "tag": {"metavar": "NAME", "help": "Label used in the run's name (default: run)"},
    "registry": {
        "metavar": "URL",
        "help": (
            "Registry database URL (SQLAlchemy), or none (default: registry.sqlite in the "
            "results directory)"
        ),
    },
    "adopt": {
        "action": "store_true",
        "help": "Also record, compare and gate tests written for pytest-benchmark",
    },
    "baseline": {
        "metavar": "RUN",
        "help": (
            "Compare with a baseline, a run (name or folder), or a pytest-benchmark file; last: "
            "the last comparable run on this machine"
        ),
    },
    "gate": {
        "metavar": "KIND",
        "help": (
            "Fail if a benchmark regressed beyond its limit. --gate: by history if the baseline "
            "has one; --gate=history or --gate=threshold"
        ),
    },
    "gate-missing": {
        "metavar": "VERDICT",
        "help": "Gate result for a benchmark without a baseline: pass or fail (default: pass)",
    },
    "gate-inconclusive": {
        "metavar": "VERDICT",
        "help": "Gate result if the numbers are inconclusive: pass or fail (default: pass)",
    },
    "allow-incomparable": {
        "action": "store_true",
        "help": "Compare with a baseline of another machine or configuration, with a warning",
    },
    "table": {
        "metavar": "COLUMNS",
        "help": (
            "Result table: auto, none, or its columns, comma-separated: outcome, step, relative, "
            "throughput, flops, mfu, memory, doubts, notes, or any metric (default: auto)"
        ),
    },
    "table-sort": {
        "metavar": "KEY",
        "help": (
            "Sort the result table by name, by a column or by a metric; -KEY: largest first "
            "(default: in the order of the tests)"
        ),
    },
    "table-group-by": {
        "metavar": "KEY",
        "help": (
            "Group the result table by file, function, none, or a parameter, such as precision; "
            "except by file, relative to the fastest of each group (default: file)"
        ),
    },
    "profile": {
        "action": "store_true",
        "help": "Trace a few extra steps of each benchmark with torch.profiler",
    },
}

MARKS: Final = (
    (
        "gpubench(config=None, ranks=1, limits=None, timeout_s=None, timing='step', "
        "preset=None, needs_memory_gib=None): a benchmark; "
        "`config` names its configuration, `ranks` the world sizes it runs on (an int, a tuple, "
        "'any' or '>=N'), `timing` how CUDA is timed ('step' or 'kernel'), `preset` the only one "
        "it is measured with, `needs_memory_gib` the device memory it needs in 32 bits."
    ),
    (
        "gpubench_set(*assignments): configuration keys set by this case, e.g. "
        "'model.channels_last=true'."
    ),
    "precision(*names): precisions this benchmark supports; --precision selects among them.",
    (
        "gpubench_full(*precisions): measured on a CPU only with --measure.profile=full; "
        "with arguments, only in these precisions."
    ),
)

RUN_FILE: Final = "GPUBENCH_RUN_FILE"
"""Environment variable naming a file to which the session writes its run directory."""

INI: Final = {
    "precision": ("fp32", "Default of --precision"),
    "device": ("auto", "Default of --device"),
    "preset": ("auto", "Default of --preset"),
    "results-dir": ("results", "Default of --results-dir, relative to the rootdir"),
    "baseline": ("", "Default of --baseline, for example: last"),
    "registry": ("", "Default of --registry"),
    "timeout-s": ("600", "Timeout of a benchmark in seconds"),
    "experiment": ("default", "Default of --experiment"),
    "table": ("auto", "Default of --table"),
    "table-sort": ("", "Default of --table-sort"),
    "table-group-by": ("file", "Default of --table-group-by"),
}


_GROUPS: Final = {
    "recording; see docs/guide/runs.md": (
        *("results-dir", "experiment", "tag", "registry", "resume", "adopt", "profile"),
    ),
    "comparing with earlier runs; see docs/guide/gating-in-pytest.md": (
        *("baseline", "gate", "gate-missing", "gate-inconclusive", "allow-incomparable"),
    ),
}
"""Headings in ``pytest --help``, and the flags below each; all others say how to measure."""


BENCHMARK_PATHS: Final = "gpubench_paths"
"""Ini key: what torchrun collects without a path on the command line."""


def add_options(parser: pytest.Parser) -> None:
    """Register options and ini keys."""
    title = "GPU benchmarks (gpubench)"
    measuring = parser.getgroup(
        "gpubench", f"{title}: measuring; see docs/reference/configuration.md"
    )
    group_of = {
        flag: parser.getgroup(heading, f"{title}: {heading}")
        for heading, flags in _GROUPS.items()
        for flag in flags
    }
    for name, attributes in FLAGS.items():
        group_of.get(name, measuring).addoption(
            f"--gpubench-{name}",
            dest=option_dest(name),
            **{**attributes, "help": f"Short: --{name}. {attributes['help']}"},
        )
    for name, (default, text) in INI.items():
        parser.addini(option_dest(name), text, default=default)
    parser.addini(
        BENCHMARK_PATHS,
        "Paths that `torchrun -m pytest` collects without a path, relative to the rootdir "
        "(default: benchmarks, instead of testpaths)",
        type="args",
        default=[],
    )


def is_requested(config: pytest.Config) -> bool:
    """Whether an option is given or an ini key differs from its default."""
    return any(config.getoption(option_dest(name)) not in (None, False) for name in FLAGS) or any(
        config.getini(option_dest(name)) != default for name, (default, _) in INI.items()
    )


def option_dest(name: str) -> str:
    """Attribute name of the option, and name of the ini key."""
    return f"gpubench_{name.replace('-', '_')}"


_CHOICE_OF: Final = {"--gate": "=auto"}
"""Value of a flag given alone: argparse would take the next argument for it."""


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
    return arg.startswith("--") and arg[2:].partition("=")[0] in FLAGS


def _is_dot_key(arg: str) -> bool:
    section, dot, _ = arg[2:].partition("=")[0].partition(".")
    return arg.startswith("--") and bool(dot) and section in SECTIONS
