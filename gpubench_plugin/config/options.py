"""Registration of options and marks with pytest, short names, and suggestions for misspelt ones.

Only ``--gpubench-<name>`` is registered: a short name such as ``--precision`` may belong to another
plugin or a project's conftest. :func:`expand_short_names` lends the short names where they are
free.
"""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Final

from gpubench_plugin.config.settings import FLAGS, OPTIONS, option_dest
from gpubench_plugin.core.errors import CERTAIN, alike, invalid_choice

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
    "engine",
)
"""The sections of a configuration, known here without importing the schema."""

MARKS: Final = (
    (
        "gpubench(config=None, ranks=1, limits=None, timeout_s=None, timing='step', "
        "preset=None, needs_memory_gib=None, exclusive=None): a benchmark; "
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

BENCHMARK_PATHS: Final = "gpubench_paths"
"""Ini key: what torchrun collects without a path on the command line."""


def add_options(parser: pytest.Parser) -> None:
    """Register options and ini keys."""
    for option in OPTIONS.values():
        dest = option_dest(option.name)
        if option.help:
            description = f"GPU benchmarks (gpubench): {option.group}"
            metavar = {"metavar": option.metavar} if option.metavar else {}
            parser.getgroup(description, description).addoption(
                f"--gpubench-{option.name}",
                dest=dest,
                action=option.action,
                help=f"Short: --{option.name}. {option.help}",
                **metavar,
            )
        if option.ini is not None:
            text = option.ini_help or f"Default of --{option.name}"
            parser.addini(dest, text, default=option.ini)
    parser.addini(
        BENCHMARK_PATHS,
        "Paths that `torchrun -m pytest` collects without a path, relative to the rootdir "
        "(default: benchmarks, instead of testpaths)",
        type="args",
        default=[],
    )


def is_requested(config: pytest.Config, *, by_flag: bool = False) -> bool:
    """Whether an option is given or, unless `by_flag`, an ini key differs from its default."""
    stated = ((option, option.value_in(config)) for option in OPTIONS.values())
    return any(
        v is not None and (v.is_flag or (v.value != option.ini and not by_flag))
        for option, v in stated
    )


def refuse_unknown_ini_keys(config: pytest.Config) -> None:
    """Refuse an ini key that begins as ours do and that nobody has registered.

    Raises:
        UsageProblem: there is one: to pytest it is a warning, and a default would be measured.
    """
    own = (option_dest(option.name) for option in OPTIONS.values() if option.ini is not None)
    allowed = sorted({*own, BENCHMARK_PATHS})
    # pytest has no public way to all keys that a user has set; the second name is that of pytest 8.
    for key in getattr(config, "_inicfg" if hasattr(config, "_inicfg") else "inicfg"):
        if key.startswith(option_dest("")):
            try:
                config.getini(key)
            except ValueError:
                raise invalid_choice("ini file", key, allowed, noun="key ") from None


def expand_short_names(args: list[str], parser: pytest.Parser) -> None:
    """Expand, in place, short option names and dot keys that no other plugin defines.

    ``--precision=amp`` becomes ``--gpubench-precision=amp`` and ``--training.batch_size=64``
    becomes ``--gpubench-set=training.batch_size=64``; a dot key without ``=`` takes the next
    argument as its value.

    To be run after all plugins and initial conftests have registered their options, so that a
    project's own ``--device`` stays the project's.
    """
    if any(_is_short(arg) or _is_dot_key(arg) for arg in args):
        # argparse takes an unknown option with a space in its value for a path.
        args[:] = _expanded(args, _unknown([_spaceless(arg) for arg in args], parser))


def _unknown(args: list[str], parser: pytest.Parser) -> list[str]:
    """The `args` that nobody has registered."""
    return parser.parse_known_and_unknown_args(args, Namespace())[1]


def _expanded(args: list[str], unknown: list[str]) -> Iterator[str]:
    remaining = iter(args)
    for arg in remaining:
        if _spaceless(arg) not in unknown:
            yield arg
        elif _is_short(arg):
            # argparse would take the next argument for the value of a flag given alone.
            alone = FLAGS[arg[2:]].alone if arg[2:] in FLAGS else ""
            yield f"--gpubench-{arg[2:]}={alone}" if alone else f"--gpubench-{arg[2:]}"
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


def suggest_options(args: list[str], parser: pytest.Parser) -> None:
    """Add to pytest's error for unrecognized arguments the options of ours that they misspell.

    To be run after :func:`expand_short_names`.
    """
    options = {arg: option for arg in args if (option := suggested_option(arg))}
    if options:
        unknown = _unknown(args, parser)
        if meant := [option for arg, option in options.items() if arg in unknown]:
            parser.extra_info["did you mean"] = " ".join(meant)


def suggested_option(arg: str) -> str:
    """The gpubench option that `arg` probably misspells, with its value; empty if none."""
    name, equals, value = arg.partition("=")
    word, dot, key = name[2:].partition(".")
    is_right = word.removeprefix("gpubench-") in FLAGS or word in SECTIONS
    if not name.startswith("--") or is_right:
        return ""
    names = SECTIONS if dot else (*FLAGS, *(f"gpubench-{flag}" for flag in FLAGS))
    near = alike(word.replace("_", "-").casefold(), names, cutoff=CERTAIN)
    return f"--{near[0]}{dot}{key}{equals}{value}" if near else ""
