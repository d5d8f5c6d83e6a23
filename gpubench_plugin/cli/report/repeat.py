"""Command lines that measure one benchmark again."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from typing import Final

from gpubench_plugin.cli.report.subjects import Subject
from gpubench_plugin.config.settings import FLAGS
from gpubench_plugin.core.records import Measurement

# What selects benchmarks, or is of that session alone: its files, its gate.
_DROPPED: Final = re.compile(
    r"-[a-z]*[km]|--(deselect|lf|last-failed|ff|failed-first|junit-?xml|benchmark-json"
    r"|(gpubench-)?(report|resume|gate[\w-]*|table|world-size))(?![\w-])"
)
# Words before a value, of those that may be followed by a path.
_BEFORE_VALUE: Final = {"-c", "--rootdir", "--ignore", "--ignore-glob", "--cov", "--basetemp"} | {
    f"--{name}" for name, option in FLAGS.items() if option.metavar and not option.alone
}


def repeat_command(subject: Subject, measurement: Measurement) -> str:
    """The command of the subject for one benchmark alone, by its node id."""
    own, _, others = subject.command.partition(" -- ")
    command = shlex.split(others) if subject.is_paired else subject.head.command
    words = [measurement.id, *_options(command, subject.head.measurements)]
    if any("world-size" in word for word in command):
        words.append(f"--world-size={measurement.world_size}")
    return f"{own} -- {shlex.join(words)}" if subject.is_paired else shlex.join(["pytest", *words])


def _options(words: Iterable[str], ids: Iterable[str]) -> Iterator[str]:
    """The options with their values, without files, folders and ids of benchmarks."""
    previous = ""
    for word in words:
        is_selection = previous not in _BEFORE_VALUE and _is_path(word, ids)
        is_of_dropped = _DROPPED.fullmatch(previous) and not word.startswith("-")
        if not (is_selection or is_of_dropped or _DROPPED.match(word)):
            yield word
        previous = word


def _is_path(word: str, ids: Iterable[str]) -> bool:
    """Whether it is outside of this folder or, from whichever folder, has a benchmark."""
    path = word.removeprefix("./").rstrip("/:.")
    pattern = rf"(.*/)?{re.escape(path)}(?![\w.-])" if path else ""
    return word.startswith(("/", "..")) or any(re.match(pattern, each) for each in ids)
