"""Names of benchmarks on one screen: as short as still tells them apart.

A name is a node id without its file, without ``test_``, and without the precision and the world
size that all of them share; :attr:`ShortNames.common` says what was left out.
"""

from __future__ import annotations

import os.path
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Final

from gpubench_plugin.core import catalog
from gpubench_plugin.reports.text import Glyphs, cut, printable, shorten, width

_PREFIX: Final = re.compile(r"(^|::)test_")
# A world size among the parameters of an id, which are joined by dashes.
_WORLD_SIZE: Final = re.compile(r"(?<![^-])ws(\d+)(?![^-])")
# Width that every name gets: a test's name and the end of its parameters.
_MIN_ROOM: Final = 30
# Characters that are worth an ellipsis.
_MIN_GAIN: Final = 3


def name_room(total: int) -> int:
    """Columns for a name on a terminal of `total` columns, the same in all parts of a screen."""
    return max(_MIN_ROOM, total // 3)


def screen_names(ids: Iterable[str], total: int, glyphs: Glyphs) -> Mapping[str, str]:
    """The name of each of the `ids` in all parts of a screen of `total` columns."""
    return short_names(ids).fitting(name_room(total), glyphs).by_id


@dataclass(frozen=True, kw_only=True)
class ShortNames:
    """Distinct names by node id, safe for a terminal, and what all of them have in common."""

    by_id: Mapping[str, str]
    common: tuple[str, ...] = ()

    def of(self, ids: Iterable[str]) -> list[str]:
        """The names of these `ids`, in order."""
        return [self.by_id[node_id] for node_id in ids]

    def fitting(self, room: int, glyphs: Glyphs) -> ShortNames:
        """The names within `room` columns, still distinct.

        Where one is too long, an ellipsis stands for what all tests' names begin with, and then for
        the middle of a name; equal ones are numbered.
        """
        names = list(self.by_id.values())
        if any(width(name) > room for name in names):
            beginning = _common_beginning(names)
            if len(beginning) >= _MIN_GAIN:
                names = [f"{glyphs.ellipsis}{name.removeprefix(beginning)}" for name in names]
        names = _numbered(shorten(names, room, glyphs.ellipsis), room, glyphs)
        return replace(self, by_id=dict(zip(self.by_id, names, strict=True)))


def short_names(ids: Iterable[str]) -> ShortNames:
    """Names for all of the `ids`; a single one keeps its parameters."""
    parts = {node_id: _split(node_id) for node_id in ids}
    variants = [variant for _, _, variant in parts.values()]
    world_size, precision = _common_parameters(variants) if len(parts) > 1 else ("", "")
    common_values = [*filter(None, (precision, world_size and f"ws{world_size}"))]
    names = {
        node_id: printable(
            _PREFIX.sub(r"\1", test) + reduce(without_parameter, common_values, variant)
        )
        for node_id, (_, test, variant) in parts.items()
    }
    counts = Counter(names.values())
    names = {
        node_id: name if name and counts[name] == 1 else printable(node_id)
        for node_id, name in names.items()
    }
    files = {file for file, _, _ in parts.values()}
    common = (
        printable(files.pop()) if len(files) == 1 else "",
        f"precision {precision}" if precision else "",
        f"world size {world_size}" if world_size else "",
    )
    return ShortNames(by_id=names, common=tuple(filter(None, common)))


def _split(node_id: str) -> tuple[str, str, str]:
    """File, test, and ``-``-joined parameters in brackets; file and parameters may be empty."""
    path, bracket, variant = node_id.partition("[")
    file, separator, test = path.partition("::")
    return (file, test, bracket + variant) if separator else ("", file, bracket + variant)


def _common_parameters(variants: Iterable[str]) -> tuple[str, str]:
    """World size of all benchmarks, and the precision of all that have one; empty if they differ.

    Other parameters stay: their values may contain dashes, so that no part of them is one for sure.
    """
    sizes: set[str] = set()
    precisions: set[str] = set()
    known_precisions = catalog.choices("precision")
    for variant in variants:
        parameters = variant[1:-1]
        match = _WORLD_SIZE.search(parameters)
        if match is None:
            return "", ""
        sizes.add(match[1])
        before = f"-{parameters[: match.start()]}"
        fitting = (name for name in known_precisions if before.endswith(f"-{name}-"))
        precisions.add(max(fitting, key=len, default=""))
    precisions.discard("")
    world_size = sizes.pop() if len(sizes) == 1 else ""
    return world_size, precisions.pop() if len(precisions) == 1 else ""


def without_parameter(name: str, value: str) -> str:
    """The name without a `value` among its parameters."""
    token = re.compile(rf"(?<=[\[-]){re.escape(value)}(?:-|(?=\]))")
    return token.sub("", name, count=1).replace("-]", "]").removesuffix("[]")


def _common_beginning(names: Sequence[str]) -> str:
    """What the names of several tests begin with, by whole words; may be empty."""
    tests = {name.partition("[")[0] for name in names}
    if len(tests) == 1:
        return ""
    common = os.path.commonprefix([*tests])  # noqa: RUF071 # names are no paths
    return common[: max(map(common.rfind, "_/:.")) + 1]


def _numbered(names: Sequence[str], room: int, glyphs: Glyphs) -> list[str]:
    """The `names`, the second and later of the same with a number."""
    occurrences: Counter[str] = Counter()
    numbered = []
    for name in names:
        occurrences[name] += 1
        suffix = f"#{occurrences[name]}" if occurrences[name] > 1 else ""
        numbered.append(cut(name, room - len(suffix), glyphs.ellipsis) + suffix)
    return numbered
