"""Suggestions for options of pytest that look like misspelt ones of this plugin.

Only an option that nobody defines, and that is one slip away or another word for ours, is answered:
a mistake that concerns another plugin or the project stays pytest's alone.
"""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Final

from gpubench_plugin.config.options import FLAGS, SECTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest

_PREFIX: Final = "gpubench"
_FEWEST_LETTERS: Final = 5
"""Letters of a word that may be misspelt: ``--set`` and ``--tag`` are near to too many others."""

_LEAST_ALIKE: Final = 0.8
"""Share of letters in common: two swapped of ``device`` leave 0.83; not measured."""

_OTHER_WORDS: Final = {
    "batchsize": "training.batch_size",
    "cpu": "device=cpu",
    "cuda": "device=cuda",
    "dtype": "precision",
    "gpu": "device=cuda",
}
"""Options of ours by what others call them, without separators; their own value replaces one."""


def suggest_options(args: list[str], parser: pytest.Parser) -> None:
    """Add to pytest's error for unrecognized arguments what of ours was probably meant.

    To be called when all plugins have registered their options.
    """
    suggestions = {arg: option for arg in args if (option := likely_option(arg))}
    if not suggestions:
        return
    _, unknown = parser.parse_known_and_unknown_args(args, Namespace())
    if options := [option for arg, option in suggestions.items() if arg in unknown]:
        parser.extra_info["did you mean"] = " ".join(options)


def likely_option(arg: str) -> str:
    """The option of ours, with its value, that `arg` means or is one slip away from, or empty.

    An option that is spelt right is none either.
    """
    name, equals, value = arg.partition("=")
    if not name.startswith("--") or name[2:] in FLAGS:
        return ""
    section, dot, key = name[2:].partition(".")
    if dot:
        near = _near(section, SECTIONS)
        return f"--{near}.{key}{equals}{value}" if near and near != section else ""
    prefix, rest = name[2 : len(_PREFIX) + 2], name[len(_PREFIX) + 3 :]
    if prefix == _PREFIX:
        is_right = name == f"--{_PREFIX}-{rest}" and rest in FLAGS
        return "" if is_right else _option(f"{_PREFIX}-", rest, equals + value)
    if meaning := _OTHER_WORDS.get(_letters(name[2:])):
        return f"--{meaning}" if "=" in meaning else f"--{meaning}{equals}{value}"
    return _option("", name[2:], equals + value)


def _option(prefix: str, name: str, value: str) -> str:
    near = _near(name, FLAGS)
    return f"--{prefix}{near}{value}" if near else ""


def _near(word: str, names: Iterable[str]) -> str:
    """The name that `word` is a slip away from: case, separators, or a letter or two."""
    return next((name for name in names if _is_near(_letters(word), _letters(name))), "")


def _letters(word: str) -> str:
    return word.replace("-", "").replace("_", "").casefold()


def _is_near(letters: str, other_letters: str) -> bool:
    if letters == other_letters:
        return True
    if (
        min(len(letters), len(other_letters)) < _FEWEST_LETTERS
        or letters[0] != other_letters[0]  # seldom wrong, see baselines/store.py
        or abs(len(letters) - len(other_letters)) > 1
    ):
        return False
    from difflib import SequenceMatcher

    if sorted(letters) == sorted(other_letters):  # swapped, be it far apart
        return True
    return SequenceMatcher(None, letters, other_letters).ratio() >= _LEAST_ALIKE
