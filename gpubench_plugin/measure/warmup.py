"""Preparation of a step for its timing: warm-up until it is steady, calibration of its clock."""

from __future__ import annotations

import math
from array import array
from dataclasses import replace
from itertools import combinations, pairwise
from statistics import fmean, median
from typing import TYPE_CHECKING

from gpubench_plugin.core.records import round_medians
from gpubench_plugin.measure.interval import ranks_among
from gpubench_plugin.measure.plan import Pace, Plan, Planner, remaining_rounds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubench_plugin.config.sections import MeasureSection
    from gpubench_plugin.measure.clocks.base import Block, Clock, Task
    from gpubench_plugin.ranks.agreement import RankAgreement

# Rounds tested for a trend: 50 ms of a short step, 0.1 s of one of 2 ms. Long enough for a trend of
# 2%, and short enough to forget a slow start after as many rounds.
_TAIL = 50
# Rounds whose median is the pace: enough to leave out one stall.
_RECENT = 5
# Minimum warm-up by default: accelerators have clocks to raise and kernels to choose.
_ACCELERATOR_S = 0.5
_CPU_S = 0.1
# Growth of a block's calls over the block before: the first pace may be far too fast.
_GROWTH = 10
# Seconds of a call, setup and teardown included, from which no others are spent on it: a cold start
# or a compilation, whose flags are not worth minutes.
_COSTLY_CALL_S = 1.0
# Calls, of warm-up and ``measure.steps``, below which none are spent on calibrating the clock.
_FEW_CALLS = 10
# A maximum up to which there is no warm-up at all: less than it takes the ranks to agree on one.
_NO_WARMUP_S = 1e-6


def warm_up(
    task: Task, planner: Planner, agreement: RankAgreement, *, first_call_s: float, is_counted: bool
) -> WarmUp:
    """Run rounds until the step is steady, or a limit is reached; then calibrate the clock.

    At least `warmup_iterations` calls and `warmup_s` seconds; then until the last 10 to 50 rounds
    have no trend beyond `steady_tolerance`, for at most `warmup_max_rounds` further rounds or
    `warmup_max_s` in all. The stopping rule has no part in it. No round runs where `warmup_max_s`
    is a microsecond or less: the pace is then that of the first call.

    If the calls are counted (``measure.by=steps``) and few, none are spent on the calibration.
    """
    clock, section = planner.clock, planner.section
    timed_planner = replace(planner, section=section.model_copy(update={"by": "ci"}))
    warm = WarmUp(clock, section, first_call_s=first_call_s)
    while agreement.decide(int(warm.should_continue())):
        plan = warm.next_plan(timed_planner).broadcast(agreement)
        start = clock.now()
        block = clock.block(
            task, durations=plan.durations_per_block, calls_per_duration=plan.calls_per_duration
        )
        warm.add(block, plan, wall_s=(clock.now() - start) * 1e-9)
    warm.ended_trending = bool(agreement.decide(int(warm.is_trending)))
    is_few = is_counted and warm.calls + section.steps < _FEW_CALLS
    is_calibrated = not agreement.decide(int(is_few or warm.is_costly))
    clock.calibrate(task, may_call=is_calibrated)
    warm.calibration_calls = clock.calibration_calls if is_calibrated else 0
    return warm


class WarmUp:
    """Warm-up on one rank; :func:`warm_up` adds what rank zero has found.

    `durations_s` are the seconds of each group of calls timed together; their sum is the time
    spent. `pace` is that of the last rounds, before any that of the first call.
    """

    def __init__(self, clock: Clock, section: MeasureSection, *, first_call_s: float = 0.0) -> None:
        self.clock = clock
        self._start_ns = clock.now()
        self._section = section
        default_s = _ACCELERATOR_S if clock.accelerator else _CPU_S
        self._min_s = default_s if section.warmup_s is None else section.warmup_s
        self._rounds_s: list[float] = []
        self._rounds_to_go = section.warmup_max_rounds
        self._last_block_calls = 0
        self._long_enough = False
        self.durations_s = array("d")
        self.calls = 0
        self.pace = Pace(timed_s=first_call_s, wall_s=first_call_s)
        self.first_call_s = first_call_s
        self.ended_trending = False
        self.calibration_calls = 0

    @property
    def is_costly(self) -> bool:
        """Whether a call takes so long that none is spent on anything but the measurement."""
        return self.pace.wall_s >= _COSTLY_CALL_S

    @property
    def steady(self) -> bool:
        """Whether the last rounds are sufficient, and the first of them equal the last."""
        rounds_s, tolerance = self._rounds_s, self._section.steady_tolerance
        return len(rounds_s) >= _FEWEST and not ends_differ(rounds_s, tolerance)

    @property
    def is_trending(self) -> bool:
        """Whether the last rounds still have a trend."""
        return is_trending(self._rounds_s, self._section.steady_tolerance)

    @property
    def tail_s(self) -> tuple[float, ...]:
        """The last third of the stored rounds, which a trend would have moved; at least five."""
        return tuple(self._rounds_s[-max(_RECENT, len(self._rounds_s) // 3) :])

    def should_continue(self) -> bool:
        """Whether the step is not steady yet and no limit is reached."""
        max_s = self._section.warmup_max_s
        if max_s <= _NO_WARMUP_S or self._elapsed_s() >= max_s:
            return False
        return not (self._long_enough and (self.steady or self._rounds_to_go <= 0))

    def next_plan(self, planner: Planner) -> Plan:
        """Next block: a single call first, then within the time limit."""
        plan = planner.plan(self.pace, max_calls=max(1, _GROWTH * self._last_block_calls))
        rounds_left = remaining_rounds(
            self._section.warmup_max_s - self._elapsed_s(), plan.calls_per_round * self.pace.wall_s
        )
        rounds_left = max(planner.clock.fewest_calls, rounds_left)
        return replace(plan, rounds_per_block=min(plan.rounds_per_block, rounds_left))

    def add(self, block: Block, plan: Plan, *, wall_s: float) -> None:
        """Add a block of that plan, which took `wall_s` of wall time."""
        rounds_s = round_medians(block.durations_s, plan.durations_per_round)
        if self._long_enough:
            self._rounds_to_go -= len(rounds_s)
        self._rounds_s = [*self._rounds_s, *rounds_s][-_TAIL:]
        self.durations_s.extend(seconds * plan.calls_per_duration for seconds in block.durations_s)
        self.calls += block.calls
        self._last_block_calls = block.calls
        self._long_enough = (
            self.calls >= self._section.warmup_iterations and self._elapsed_s() >= self._min_s
        )
        # Until then the stored rounds may be those of the first, slow calls.
        recent_s = self._rounds_s[-_RECENT:] if self._long_enough else rounds_s
        self.pace = Pace(timed_s=median(recent_s), wall_s=wall_s / block.calls)

    def _elapsed_s(self) -> float:
        return (self.clock.now() - self._start_ns) * 1e-9


# In fewer rounds a trend cannot be told from noise: two parts of five are compared.
_FEWEST = 10
_LEAST_PART = 5

# Share of pairs that are slower in one part: noise within a part does not reach it, however
# autocorrelated, but a drift that spans both parts does…
_APART = 0.95
# …and so do two parts of five by chance in less than 1% of cases.
_APART_ERRORS = 2.5
# Standard errors, widened by autocorrelation, between parts that overlap.
_ERRORS = 3.5


# Parts of a series whose order tells a trend from phases of the machine, of five rounds at least…
_PARTS = 10
# …and Kendall's tau of their medians from which on it is one: 0.5% of ten independent values reach
# it. Levels that last for a fifth of the series do in 9%, where the ends differ in 47%.
_ORDERLY = 0.7


def is_trending(rounds_s: Sequence[float], tolerance: float) -> bool:
    """Whether the ends of the rounds differ, and what is between them goes from one to the other.

    A machine that is slow for a while moves one end, a step that changes all parts in order.
    """
    if not ends_differ(rounds_s, tolerance):
        return False
    parts = min(_PARTS, len(rounds_s) // _LEAST_PART)
    ends = [len(rounds_s) * part // parts for part in range(parts + 1)]
    medians = [median(rounds_s[start:end]) for start, end in pairwise(ends)]
    signs = [(later > earlier) - (later < earlier) for earlier, later in combinations(medians, 2)]
    return abs(fmean(signs)) >= _ORDERLY


def ends_differ(rounds_s: Sequence[float], tolerance: float) -> bool:
    """Whether the last rounds differ significantly from the first by more than `tolerance`."""
    if len(rounds_s) < _FEWEST:
        return False
    size = max(_LEAST_PART, len(rounds_s) // 3)
    first_rounds, last_rounds = rounds_s[:size], rounds_s[-size:]
    first_median, last_median = median(first_rounds), median(last_rounds)
    if abs(last_median - first_median) <= tolerance * first_median:
        return False
    # Share of pairs whose last round is slower; ties count half.
    slower_share = float(ranks_among(sorted(first_rounds), last_rounds).mean()) / (2 * size)
    # Source: H. B. Mann and D. R. Whitney, Annals of Mathematical Statistics 18 (1947), 50-60.
    errors = abs(slower_share - 0.5) / math.sqrt((2 * size + 1) / (12 * size * size))
    if max(slower_share, 1 - slower_share) >= _APART:
        return errors >= _APART_ERRORS
    return errors >= _ERRORS * math.sqrt(_correlation_time(first_rounds, last_rounds))


def _correlation_time(*sections: Sequence[float]) -> float:
    """Correlation time in rounds, from an AR(1) model of their ranks.

    The first autocorrelation of n values comes out too small by (1 + 4φ) / n. Source: M. G.
    Kendall, Note on bias in the estimation of autocorrelation, Biometrika 41 (1954), 403-404.
    """
    size = len(sections[0])
    phi = fmean(_autocorrelation(part) for part in sections)
    phi = min(max(phi + (1 + 4 * phi) / size, 0.0), 1 - 2 / size)
    return (1 + phi) / (1 - phi)


def _autocorrelation(values: Sequence[float]) -> float:
    """Lag-1 autocorrelation of the ranks of the values."""
    ranks = ranks_among(sorted(values), values) - len(values)
    squares = float(ranks @ ranks)
    return float(ranks[:-1] @ ranks[1:]) / squares if squares else 0.0
