"""Command lines that measure one benchmark again."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Iterator
from pathlib import PurePath
from typing import Final

from gpubench_plugin.cli.report.subjects import Subject

# What selects benchmarks, or is of that session alone: its files, its gate.
_DROPPED: Final = re.compile(
    r"-[km]|--(deselect|lf|last-failed|ff|failed-first|junit-?xml|benchmark-json"
    r"|(gpubench-)?(report|resume|gate|table))(?![\w-])"
)


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
    previous = ""
    for word in words:
        is_option = word.startswith("-")
        is_selection = not is_option and (_DROPPED.fullmatch(previous) or _is_path(word, ids))
        if not (is_selection or _DROPPED.match(word)):
            yield word
        previous = word


def _is_path(word: str, ids: Iterable[str]) -> bool:
    """Whether a benchmark is there, also of an absolute path and from another folder."""
    path = PurePath(word).name if PurePath(word).is_absolute() else word.lstrip("./")
    part = re.compile(rf"(.*/)?{re.escape(path)}(?![\w.-])" if path else "")
    return any(map(part.match, ids))
