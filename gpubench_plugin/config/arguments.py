"""Short option names and dot keys on the command line, where nobody else owns them.

Run after all plugins and initial conftests have registered their options, so that a project's own
``--device`` stays the project's.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from gpubench_plugin.config.options import SECTIONS, SHORT_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

_CHOICE_OF: Final = {"--gate": "=auto"}
"""What a flag means that may stand alone: argparse would take the next argument for its value."""


def lend_short_names(args: list[str], parser: pytest.Parser) -> None:
    """Rewrite in place what no one else owns.

    ``--precision=amp`` becomes ``--gpubench-precision=amp`` and ``--training.batch_size=64``
    becomes ``--gpubench-set=training.batch_size=64``; a dot key without ``=`` takes the next
    argument as its value.
    """
    if not any(_is_short(arg) or _is_dot_key(arg) for arg in args):
        return
    # argparse takes an unknown option with a space in its value for a path.
    asked = [_spaceless(arg) for arg in args]
    _, unknown = parser.parse_known_and_unknown_args(asked, argparse.Namespace())
    args[:] = _rewritten(args, frozenset(unknown))


def _rewritten(args: list[str], unknown: frozenset[str]) -> Iterator[str]:
    rest = iter(args)
    for arg in rest:
        if _spaceless(arg) not in unknown:
            yield arg
        elif _is_short(arg):
            yield f"--gpubench-{arg[2:]}{_CHOICE_OF.get(arg, '')}"
        elif _is_dot_key(arg):
            assignment = arg[2:] if "=" in arg else f"{arg[2:]}={next(rest, '')}"
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
