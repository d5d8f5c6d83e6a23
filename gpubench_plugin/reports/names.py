"""Names of benchmarks on one screen: as short as still tells them apart.

A name is a node id without its file, without ``test_``, and without the precision and the world
size that all of them share; :attr:`ShortNames.common` says what was left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from gpubench_plugin import catalog
from gpubench_plugin.reports.text import printable

_PREFIX: Final = re.compile(r"(^|::)test_")
_WORLD_SIZE: Final = re.compile(r"(?<![^-])ws(\d+)(?![^-])")
"""A world size among the parameters of an id, which are joined by dashes."""


@dataclass(frozen=True, kw_only=True)
class ShortNames:
    """Distinct names by node id, safe for a terminal, and what all of them have in common."""

    by_id: Mapping[str, str]
    common: tuple[str, ...] = ()

    def of(self, ids: Iterable[str]) -> list[str]:
        """The names of these `ids`, in order."""
        return [self.by_id[node_id] for node_id in ids]


@dataclass(frozen=True, kw_only=True)
class _Parts:
    """Parts of a node id; `variant` are the parameters, None without any."""

    file: str
    test: str
    variant: str | None

    @classmethod
    def of(cls, node_id: str) -> _Parts:
        path, bracket, variant = node_id.partition("[")
        file, separator, test = path.partition("::")
        return cls(
            file=file if separator else "",
            test=test if separator else file,
            variant=variant.removesuffix("]") if bracket else None,
        )


def short_names(ids: Iterable[str]) -> ShortNames:
    """Names for all of the `ids`; a single one keeps its parameters."""
    parts = {node_id: _Parts.of(node_id) for node_id in ids}
    world_size, precision = _common_parameters(parts.values()) if len(parts) > 1 else ("", "")
    files = {part.file for part in parts.values()}
    names = {
        node_id: _name(part, _variant(part.variant, world_size, precision))
        for node_id, part in parts.items()
    }
    counts = Counter(names.values())
    by_id = {i: n if n and counts[n] == 1 else printable(i) for i, n in names.items()}
    common = (
        printable(files.pop()) if len(files) == 1 else "",
        f"precision {precision}" if precision else "",
        f"world size {world_size}" if world_size else "",
    )
    return ShortNames(by_id=by_id, common=tuple(filter(None, common)))


def _common_parameters(parts: Iterable[_Parts]) -> tuple[str, str]:
    """World size of all benchmarks, and the precision of all that have one; empty if they differ.

    Other parameters stay: their values may contain dashes, so that no part of them is one for sure.
    """
    sizes: set[str] = set()
    precisions: set[str] = set()
    for part in parts:
        match = _WORLD_SIZE.search(part.variant or "")
        if match is None:
            return "", ""
        sizes.add(match[1])
        precisions.add(_precision_before(part.variant or "", match.start()))
    precisions.discard("")
    world_size = sizes.pop() if len(sizes) == 1 else ""
    return world_size, precisions.pop() if len(precisions) == 1 else ""


def _precision_before(variant: str, end: int) -> str:
    """The precision that stands before the world size at `end`; the longest that fits."""
    fitting = (
        name for name in catalog.choices("precision") if f"-{variant[:end]}".endswith(f"-{name}-")
    )
    return max(fitting, key=len, default="")


def _variant(variant: str | None, world_size: str, precision: str) -> str:
    """The parameters without the common ones."""
    if variant is None:
        return ""
    parts = f"-{variant}-"
    if precision:
        parts = re.sub(rf"-{re.escape(precision)}(?=-ws\d+-)", "", parts, count=1)
    if world_size:
        parts = parts.replace(f"-ws{world_size}-", "-", 1)
    remaining = parts.removeprefix("-").removesuffix("-")
    return f"[{remaining}]" if remaining else ""


def _name(part: _Parts, variant: str) -> str:
    return printable(_PREFIX.sub(r"\1", part.test) + variant)
