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
    r"|(gpubench-)?(report|resume|gate[\w-]*|table))(?![\w-])"
)
_BEFORE_VALUE: Final = {"-c", "--rootdir"} | {
    f"--{name}" for name, option in FLAGS.items() if option.metavar and not option.alone
}


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
        is_selection = previous not in _BEFORE_VALUE and _is_path(word, ids)
        is_of_dropped = _DROPPED.fullmatch(previous) and not word.startswith("-")
        if not (is_selection or is_of_dropped or _DROPPED.match(word)):
            yield word
        previous = word


def _is_path(word: str, ids: Iterable[str]) -> bool:
    """Whether a benchmark is there, also of an absolute path and from another folder."""
    path = PurePath(word).name if PurePath(word).is_absolute() else word.lstrip("./")
    pattern = rf"(.*/)?{re.escape(path)}(?![\w.-])" if path else ""
    return any(re.match(pattern, each) for each in ids)
