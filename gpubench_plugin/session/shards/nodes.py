"""Whether nodes are equal: by benchmarks of the machine itself, which every shard measures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median
from typing import TYPE_CHECKING, Final

from gpubench_plugin.core.format import change_percentage

if TYPE_CHECKING:
    import pytest

_FOLDER: Final = "control"
_FEWEST: Final = 3
"""Nodes of which one can be told from the others."""
_WIDTH: Final = 5.0
"""Standard deviations: one of 10⁶ equal nodes, if the numbers are normal."""
_NORMAL: Final = 1.4826
"""Makes the median absolute deviation the standard deviation of normal numbers."""
_FLOOR: Final = 0.01
"""Least relative deviation, so that nodes that agree by chance accuse no other."""


def is_control(item: pytest.Item) -> bool:
    """Whether the test lies in a folder ``control``."""
    return item.path.parent.name == _FOLDER


def outliers(step_s: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """Lines that name the nodes outside the band of the others.

    `step_s` are durations of a step by the test's id and the node. The band is five robust
    deviations wide on either side of the nodes' median.
    """
    for test, own in step_s.items():
        middle = median(own.values())
        spread = median(abs(value - middle) for value in own.values()) * _NORMAL
        for node, value in own.items():
            if len(own) >= _FEWEST and abs(value - middle) > _WIDTH * max(spread, _FLOOR * middle):
                change = change_percentage(value / middle - 1, with_sign=True)
                yield f"{node} is not like the other nodes: {change} in {test}"
