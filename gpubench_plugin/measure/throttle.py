"""Waiting for a throttled device, as ``measure.throttle=wait`` asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gpubench_plugin.ranks.process_group import RankAgreement

_LONGEST_S: Final = 60.0
"""Longest wait: a GPU without work has cooled by then, or has other reasons. Not measured."""

_TIMEOUT_SHARE: Final = 0.25
"""Share of a benchmark's timeout: waiting must not be what it fails by. Not measured."""

_POLL_S: Final = 0.5
"""Seconds between two readings. Not measured."""


@dataclass(frozen=True, kw_only=True)
class ThrottleWait:
    """A wait: its seconds, this rank's reasons at its start, and whether it ended too early."""

    waited_s: float
    reasons: tuple[str, ...]
    still_throttled: bool


def longest_wait_s(timeout_s: float) -> float:
    """Longest wait of a benchmark with that timeout."""
    return min(_LONGEST_S, _TIMEOUT_SHARE * timeout_s)


def wait_while_throttled(
    slowing_reasons: Callable[[], Sequence[str]],
    agreement: RankAgreement,
    *,
    limit_s: float,
    now: Callable[[], float] = monotonic,
    pause: Callable[[float], object] = sleep,
) -> ThrottleWait | None:
    """Wait until no rank's device is throttled, for at most `limit_s`; None if none was.

    `slowing_reasons` tells those of this rank's device now. Every rank must call this, and all wait
    equally long. Heat leaves an idle device; a power limit that only work reaches does not show.
    """
    reasons = tuple(slowing_reasons())
    is_throttled = _on_any_rank(reasons, agreement)
    if not is_throttled:
        return None
    start_s = now()
    while is_throttled and agreement.decide(int(now() - start_s < limit_s)):
        pause(min(_POLL_S, limit_s))
        is_throttled = _on_any_rank(slowing_reasons(), agreement)
    return ThrottleWait(waited_s=now() - start_s, reasons=reasons, still_throttled=is_throttled)


def _on_any_rank(reasons: Sequence[str], agreement: RankAgreement) -> bool:
    return agreement.mean([float(bool(reasons))])[0] > 0
