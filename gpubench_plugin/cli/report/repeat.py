"""Command lines that measure one benchmark again."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Iterator
from pathlib import PurePath
from typing import Final

from gpubench_plugin.cli.report.subjects import Subject
from gpubench_plugin.config.settings import FLAGS

# What selects benchmarks, or is of that session alone: its files, its gate.
_DROPPED: Final = re.compile(
    r"-[km]|--(deselect|lf|last-failed|ff|failed-first|junit-?xml|benchmark-json"
    r"|(gpubench-)?(report|resume|gate|table)\b)"
)
# Words before a value; other options may be flags.
_BEFORE_VALUE: Final = frozenset(
    f"--{prefix}{name}"
    for name, option in FLAGS.items()
    for prefix in ("", "gpubench-")
    if option.metavar and not option.alone
) | {"-k", "-m", "--deselect", "--junitxml", "--junit-xml", "--benchmark-json"}


def repeat_command(subject: Subject, benchmark: str) -> str:
    """The command of the subject for this benchmark alone, by node id."""
    ids = subject.head.measurements.keys()
    if not subject.is_paired:
        return shlex.join(["pytest", benchmark, *_options(subject.head.command, ids)])
    own, separator, others = subject.command.partition(" -- ")
    words = [benchmark, *_options(shlex.split(others), ids)] if separator else [benchmark]
    return f"{own} -- {shlex.join(words)}"


def _options(words: Iterable[str], ids: Collection[str]) -> Iterator[str]:
    """The options with their values, without files, folders and ids of benchmarks."""
    is_value = is_kept = False
    for word in words:
        if not is_value:
            is_kept = not (_DROPPED.match(word) or _is_selection(word, ids))
        if is_kept:
            yield word
        is_value = not is_value and (word in _BEFORE_VALUE or _is_dot_key(word))


def _is_dot_key(word: str) -> bool:
    """Whether it is the key of a configuration, followed by its value."""
    return word.startswith("--") and "." in word and "=" not in word


def _is_selection(word: str, ids: Iterable[str]) -> bool:
    path = PurePath(word).name if PurePath(word).is_absolute() else word.lstrip("./")
    part = re.compile(rf"(.*/)?{re.escape(path)}(?![\w.-])" if path else "")
    return not word.startswith("-") and any(map(part.match, ids))
