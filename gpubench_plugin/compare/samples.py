"""The earlier runs that one series is judged by: those that are the level, and later ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gpubench_plugin.compare.reasons import counted
from gpubench_plugin.compare.series import Series

FEWEST: Final = 10
"""Values without which nothing is said: the spread of fewer is hardly known."""


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Positive values, the oldest first: one that is not has no logarithm.

    `level` are those that the head is judged by, `later` those of runs that nobody vouches for.
    `pinned`: somebody has said that the level is one; else it is the oldest run.
    """

    level: tuple[float, ...]
    later: tuple[float, ...]
    pinned: bool

    @classmethod
    def of(cls, series: Series) -> Samples:
        """Those of `series`."""
        level, later = _fit(series.level), _fit(series.base[len(series.level) :])
        return cls(level=level, later=later, pinned=series.pinned != 0)

    @property
    def steps(self) -> tuple[float, ...]:
        """The values whose differences tell the noise between runs."""
        return (*self.level[-1:], *self.later)

    @property
    def level_tells(self) -> bool:
        """Whether the level itself tells the noise."""
        return len(self.level) >= FEWEST

    @property
    def steps_tell(self) -> bool:
        """Whether later runs tell it."""
        return len(self.steps) >= FEWEST

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.level) + len(self.later)

    @property
    def words(self) -> str:
        """How many there are of which kind."""
        if not self.later:
            return counted(self.count, "earlier run")
        if not self.pinned:
            return f"{counted(self.count, 'earlier run')}, none pinned, the oldest is the level"
        return f"{len(self.level)} pinned and {counted(len(self.later), 'later run')}"


def _fit(values: Sequence[float]) -> tuple[float, ...]:
    return tuple(value for value in values if math.isfinite(value) and value > 0)
