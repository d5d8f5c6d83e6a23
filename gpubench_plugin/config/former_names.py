"""The ids that benchmarks had while every id named a precision, also of those that use none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from gpubench_plugin import catalog

PRECISION_LEFT: Final = "ids name a precision only where it is used"
"""Why an id is another one now."""


def former_ids(old: Iterable[str], new: Iterable[str]) -> Mapping[str, str]:
    """By id of `new`, the one of `old` that is the same but for a precision it names.

    The first of several; none where both have the id, or the old one is among `new` as well: then
    it is another benchmark.
    """
    before, now = dict.fromkeys(old), dict.fromkeys(new)
    lost = now.keys() - before.keys()
    former_by_new: dict[str, str] = {}
    for former in before if lost else ():
        if former not in now:
            for shorter in _without_precision(former):
                if shorter in lost:
                    former_by_new.setdefault(shorter, former)
    return former_by_new


def _without_precision(node_id: str) -> Iterator[str]:
    """``test_a[8-ws1]`` of ``test_a[8-fp32-ws1]``."""
    test, bracket, variant = node_id.partition("[")
    parts = f"-{variant.removesuffix(']')}-" if bracket else ""
    for precision in catalog.choices("precision"):
        before, named, after = parts.partition(f"-{precision}-")
        if named:
            rest = f"{before}-{after}".removeprefix("-").removesuffix("-")
            yield f"{test}[{rest}]" if rest else test
