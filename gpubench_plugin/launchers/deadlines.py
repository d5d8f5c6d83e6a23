"""Timeouts of the ranks of one benchmark."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Self

from gpubench_plugin.config.case import Case

DEATH_SETTLE_S: Final = 0.05
"""The first death noticed need not be the first: peers fail within 0.05 s of it (gloo, 2 cores)."""


@dataclass(frozen=True, kw_only=True)
class Timeouts:
    """Timeouts in seconds: of the test, and of the other ranks after one has ended it.

    `key` names the setting of both of the latter, if that is one.
    """

    timeout_s: float
    failure_grace_s: float
    divergence_s: float
    key: str = ""

    @classmethod
    def of_case(cls, case: Case | None, default_s: float) -> Self:
        """Timeouts of `case`; `default_s` is the timeout where it sets none.

        A test that is no benchmark has none until a rank has ended it.
        """
        if case is None:
            grace = {"failure_grace_s": default_s, "divergence_s": default_s}
            return cls(timeout_s=math.inf, key="gpubench_timeout_s", **grace)
        distributed = case.configuration.distributed
        return cls(
            timeout_s=case.timeout_s(default_s),
            failure_grace_s=distributed.failure_grace_s,
            divergence_s=distributed.divergence_s,
        )


class Deadline:
    """Deadline of the ranks that have not ended or joined yet, and the message used on expiry.

    Times are those of a :class:`~gpubench_plugin.system.timeout_clock.TimeoutClock`.
    """

    def __init__(self, timeouts: Timeouts, now: float, until: float | None = None):
        self._timeouts = timeouts
        self.at = now + timeouts.timeout_s if until is None else until
        self.message = f"timed out after {timeouts.timeout_s:g} s (measure.timeout_s)"

    @classmethod
    def to_join(cls, timeouts: Timeouts, now: float) -> Self:
        """Deadline for ranks to join a gang."""
        deadline = cls(timeouts, now)
        deadline.message = f"within {timeouts.timeout_s:g} s (gpubench_timeout_s)"
        return deadline

    def rank_ended(self, now: float, *, passed: bool, skipped: bool = False) -> None:
        """Shorten the deadline after a rank has ended: to a shorter grace if it did not pass."""
        key = "divergence_s" if passed else "failure_grace_s"
        grace_s: float = getattr(self._timeouts, key)
        event = "passed" if passed else "skipped" if skipped else "failed"
        setting = self._timeouts.key or f"distributed.{key}"
        message = f"timed out {grace_s:g} s after another rank {event} ({setting})"
        self._shorten(now + grace_s, message)

    def rank_joined(self, now: float) -> None:
        """Shorten the deadline once a rank has joined."""
        grace_s = self._timeouts.divergence_s
        setting = self._timeouts.key or "distributed.divergence_s"
        self._shorten(now + grace_s, f"within {grace_s:g} s of another ({setting})")

    def _shorten(self, at: float, message: str) -> None:
        if at < self.at:
            self.at, self.message = at, message
