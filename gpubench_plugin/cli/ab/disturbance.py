"""Disturbed launches: decide from machine flags alone which pairs to remeasure.

Measured times are not used, so that values are not selected. Flags of replaced pairs count, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from gpubench_plugin.compare.effective_limits import SIDES, SideName
from gpubench_plugin.core.quality_flags import FEWER_THREADS, MACHINE_FLAGS
from gpubench_plugin.core.records import Result, Run

# Pairs per remeasured one, at least; for the false alarms see docs/evidence/repeats.md.
_ONE_IN: Final = 3

Cause = Literal["machine", "base", "head", "always"]
"""Cause of disturbances: the ``machine`` now and then, one side's own code, or the machine
``always``, in most pairs, so that repeats would be disturbed, too."""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attempt at a pair: the machine's `flags` of each side's launch, if it was disturbed."""

    pair: int
    flags: Mapping[SideName, tuple[str, ...]]

    @property
    def is_disturbed(self) -> bool:
        """Whether a launch of either side was."""
        return any(self.flags.values())


def disturbing_flags(run: Run, ids: Collection[str]) -> tuple[str, ...]:
    """The machine's flags in a launch, if at least half of the benchmarks `ids` raised one."""
    raised = [{*MACHINE_FLAGS} & {*run.results[i].flags} for i in ids if i in run.results]
    if 2 * sum(map(bool, raised)) < len(ids):
        return ()
    return tuple(name for name in MACHINE_FLAGS if any(name in flags for flags in raised))


def disturbance_cause(attempts: Sequence[Attempt]) -> Cause | None:
    """Classify what disturbs the launches of these `attempts`; None if nothing does.

    The machine disturbs both sides alike, so a side's own code is the cause where it was disturbed
    twice to none, four times to one, six to two, and so on.
    """
    counts = {side: sum(bool(attempt.flags[side]) for attempt in attempts) for side in SIDES}
    more_disturbed, less_disturbed = sorted(SIDES, key=lambda side: -counts[side])
    if not counts[more_disturbed]:
        return None
    if counts[more_disturbed] > 2 * counts[less_disturbed] + 1:
        return more_disturbed
    disturbed = sum(attempt.is_disturbed for attempt in attempts)
    return "always" if 2 * disturbed > len(attempts) else "machine"


def pair_to_remeasure(attempts: Sequence[Attempt], *, judged_up_to: int) -> Attempt | None:
    """The disturbed pair to remeasure before the next look, or None.

    The last attempt of each pair counts; pairs up to `judged_up_to` are final.
    """
    pairs = {attempt.pair: attempt for attempt in attempts}
    remeasured = len(attempts) - len(pairs)
    if remeasured >= len(pairs) // _ONE_IN or disturbance_cause(attempts) != "machine":
        return None
    disturbed = (attempt for attempt in pairs.values() if attempt.is_disturbed)
    return next((attempt for attempt in disturbed if attempt.pair > judged_up_to), None)


def may_hide_slow_launches(attempts: Sequence[Attempt]) -> bool:
    """Whether a pair was remeasured although only the head was ever disturbed.

    The replaced launch may have been one of a head that is slow in a few launches.
    """
    was_remeasured = len(attempts) > len({attempt.pair for attempt in attempts})
    return was_remeasured and not any(attempt.flags["base"] for attempt in attempts)


def disturbance_notes(attempts: Sequence[Attempt], results: Iterable[Result]) -> Iterator[str]:
    """Counts of disturbed launches, also of replaced pairs, with flags, and what to do.

    All `results` may have one thread already.
    """
    counts = Counter(
        name for attempt in attempts for flags in attempt.flags.values() for name in flags
    )
    if not counts:
        return
    sides = ", ".join(
        f"{side} {sum(bool(attempt.flags[side]) for attempt in attempts)} of {len(attempts)}"
        for side in SIDES
    )
    flags = ", ".join(f"{name} {counts[name]}" for name in MACHINE_FLAGS if counts[name])
    remeasured = len(attempts) - len({attempt.pair for attempt in attempts})
    yield f"disturbed launches: {sides} ({flags}); pairs remeasured: {remeasured or 'none'}"
    is_single = all(result.settings.get("distributed.threads") == 1 for result in results)
    cpus = "close programs" if is_single else FEWER_THREADS
    yield f"to quiet the machine: {cpus}; on a GPU lock its clocks (gpubench doctor)"
