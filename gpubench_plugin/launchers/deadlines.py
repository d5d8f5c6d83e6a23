"""How long the ranks of one benchmark are waited for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from gpubench_plugin.config import Case


@dataclass(frozen=True, kw_only=True)
class Patience:
    """Seconds: for the whole benchmark, and for the others once a rank has passed or has not."""

    timeout_s: float
    failure_grace_s: float
    divergence_s: float

    @classmethod
    def with_case(cls, case: Case, default_s: float) -> Self:
        """The patience with `case`, which may take `default_s` unless it says otherwise."""
        distributed = case.configuration.distributed
        return cls(
            timeout_s=case.timeout_s(default_s),
            failure_grace_s=distributed.failure_grace_s,
            divergence_s=distributed.divergence_s,
        )


class Deadline:
    """When the ranks that have not ended are given up, and what is then said of them.

    `now`, here and below, is what a
    :class:`~gpubench_plugin.environment.waking_clock.WakingClock` shows.
    """

    def __init__(self, patience: Patience, now: float):
        self._patience = patience
        self.at = now + patience.timeout_s
        self.why = f"did not end within {patience.timeout_s:g} s (measure.timeout_s)"

    def rank_ended(self, now: float, *, passed: bool, skipped: bool = False) -> None:
        """A rank has come to its end: the others have a grace, the shorter if it did not pass."""
        if passed:
            self._hasten(now, self._patience.divergence_s, "passed", "divergence_s")
        else:
            event = "skipped" if skipped else "failed"
            self._hasten(now, self._patience.failure_grace_s, event, "failure_grace_s")

    def _hasten(self, now: float, grace_s: float, event: str, key: str) -> None:
        if now + grace_s < self.at:
            self.at = now + grace_s
            self.why = (
                f"did not end within {grace_s:g} s after another rank {event} (distributed.{key})"
            )


class Muster:
    """When the ranks that have not come to a gang are given up, and what is then said of them."""

    def __init__(self, patience: Patience, now: float):
        self._grace_s = patience.divergence_s
        self.at = now + patience.timeout_s
        self.why = f"within {patience.timeout_s:g} s (gpubench_timeout_s)"

    def rank_came(self, now: float) -> None:
        """A rank is ready: the others, on the same host, should not take much longer."""
        if now + self._grace_s < self.at:
            self.at = now + self._grace_s
            self.why = f"within {self._grace_s:g} s of another (distributed.divergence_s)"
