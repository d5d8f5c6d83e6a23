"""Names of benchmarks on one screen: as short as still tells them apart.

A name is a node id without its file and without ``test_``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from gpubench_plugin.reports.text import cut, printable, shorten

_PREFIX: Final = re.compile(r"(^|::)test_")
# Width that every name gets: a test's name and the end of its parameters.
_MIN_ROOM: Final = 30


def name_room(total: int) -> int:
    """Columns for a name on a terminal of `total` columns, the same in all parts of a screen."""
    return max(_MIN_ROOM, total // 3)


def screen_names(ids: Iterable[str], total: int) -> Mapping[str, str]:
    """The name of each of the `ids` in all parts of a screen of `total` columns."""
    return short_names(ids).fitting(name_room(total)).by_id


@dataclass(frozen=True, kw_only=True)
class ShortNames:
    """Distinct names by node id, safe for a terminal, and the file of all of them, if it is one."""

    by_id: Mapping[str, str]
    file: str = ""

    def of(self, ids: Iterable[str]) -> list[str]:
        """The names of these `ids`, in order."""
        return [self.by_id[node_id] for node_id in ids]

    def fitting(self, room: int) -> ShortNames:
        """The names within `room` columns, still distinct.

        An ellipsis stands for the middle of one that is too long; equal ones are numbered.
        """
        names = _numbered(shorten(list(self.by_id.values()), room), room)
        return replace(self, by_id=dict(zip(self.by_id, names, strict=True)))


def short_names(ids: Iterable[str]) -> ShortNames:
    """Names for all of the `ids`, the same for one alone and in company that it differs from."""
    parts = {node_id: _split(node_id) for node_id in ids}
    names = {
        node_id: printable(_PREFIX.sub(r"\1", test) + variant)
        for node_id, (_, test, variant) in parts.items()
    }
    counts = Counter(names.values())
    names = {
        node_id: name if name and counts[name] == 1 else printable(node_id)
        for node_id, name in names.items()
    }
    files = {file for file, _, _ in parts.values()}
    return ShortNames(by_id=names, file=printable(files.pop()) if len(files) == 1 else "")


def _split(node_id: str) -> tuple[str, str, str]:
    """File, test, and ``-``-joined parameters in brackets; file and parameters may be empty."""
    path, bracket, variant = node_id.partition("[")
    file, separator, test = path.partition("::")
    return (file, test, bracket + variant) if separator else ("", file, bracket + variant)


def without_parameter(name: str, value: str) -> str:
    """The name without a `value` among its parameters."""
    token = re.compile(rf"(?<=[\[-]){re.escape(value)}(?:-|(?=\]))")
    return token.sub("", name, count=1).replace("-]", "]").removesuffix("[]")


def _numbered(names: Sequence[str], room: int) -> list[str]:
    """The `names`, the second and later of the same with a number."""
    occurrences: Counter[str] = Counter()
    numbered = []
    for name in names:
        occurrences[name] += 1
        suffix = f"#{occurrences[name]}" if occurrences[name] > 1 else ""
        numbered.append(cut(name, room - len(suffix)) + suffix)
    return numbered
