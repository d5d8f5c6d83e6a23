"""The numbers of one metric of one benchmark on both sides: what every judge judges."""

from __future__ import annotations

from dataclasses import dataclass

from gpubench_plugin.config.limits import Limit
from gpubench_plugin.records import Better


@dataclass(frozen=True, kw_only=True)
class Series:
    """One value per launch (of fresh processes) on each side, in the unit of the metric.

    For paired judging both sides have the same length and stand in the order of the pairs; for
    history `base` holds one value per earlier run, the oldest first, and `head` those of this run.
    Then its first `pinned` values are the level that the head is judged by; None: all of them.
    """

    id: str
    metric: str
    unit: str
    better: Better
    limit: Limit
    base: tuple[float, ...]
    head: tuple[float, ...]
    pinned: int | None = None

    @property
    def level(self) -> tuple[float, ...]:
        """The values of `base` that are the level; where none is pinned, the oldest is."""
        return self.base if self.pinned is None else self.base[: max(self.pinned, 1)]
