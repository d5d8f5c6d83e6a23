"""The wait for a throttled device, on a clock that only the wait moves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpubench_plugin.bench import probing
from gpubench_plugin.core.events import ThrottleWaitEvent
from gpubench_plugin.ranks.agreement import RankAgreement

HEAT = ("thermal slowdown",)


class Room:
    """A GPU that needs `cooling_s` seconds without work."""

    def __init__(self, cooling_s: float) -> None:
        self.time_s = 100.0
        self.pauses: list[float] = []
        self._cool_at = self.time_s + cooling_s

    def pause(self, seconds: float) -> None:
        assert len(self.pauses) < 1000, "waits without end"
        self.pauses.append(seconds)
        self.time_s += seconds

    def reasons(self) -> tuple[str, ...]:
        return HEAT if self.time_s < self._cool_at else ()

    def wait(
        self, limit_s: float, agreement: RankAgreement | None = None
    ) -> ThrottleWaitEvent | None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(probing, "monotonic", lambda: self.time_s)
            patch.setattr(probing, "sleep", self.pause)
            return probing.wait_while_throttled(
                self.reasons, agreement or RankAgreement(), limit_s=limit_s
            )


def test_a_device_that_is_not_throttled_is_not_waited_for() -> None:
    """One reading, and no pause."""
    room = Room(cooling_s=0)
    assert room.wait(60) is None
    assert room.pauses == []


def test_the_wait_ends_once_the_device_has_cooled() -> None:
    """Within one reading of it."""
    waited = Room(cooling_s=7.2).wait(60)
    assert waited == ThrottleWaitEvent(waited_s=7.5, reasons=HEAT, still_throttled=False)


def test_the_wait_is_bounded() -> None:
    """A device that stays throttled is measured all the same, and the wait was in vain."""
    waited = Room(cooling_s=1e9).wait(60)
    assert waited == ThrottleWaitEvent(waited_s=60.0, reasons=HEAT, still_throttled=True)


class OfTwoRanks(RankAgreement):
    """Agreement of a rank whose peer is throttled for its first readings."""

    def __init__(self, *peer: bool) -> None:
        super().__init__()
        self._peer: Iterator[bool] = iter(peer)

    def mean(self, values: list[float]) -> list[float]:  # type: ignore[override] # a list is enough
        return [(value + (not next(self._peer))) / 2 for value in values]


def test_a_rank_waits_for_the_device_of_another() -> None:
    """So that all begin together; its own has no reasons."""
    room = Room(cooling_s=0)
    waited = room.wait(60, OfTwoRanks(True, True, False))
    assert waited == ThrottleWaitEvent(waited_s=1.0, reasons=(), still_throttled=False)
