"""Steps whose truth is known, measured by the real loop on a clock that only they move.

A step is a function of the seconds since its first call and of the number of calls before; what it
returns is how long the call takes, in units of the step's steady time.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Final

from gpubench_plugin.config.layers import PROFILES
from gpubench_plugin.config.sections import MeasureSection
from gpubench_plugin.core.quality_flags import doubtful_flags
from gpubench_plugin.measure.clocks.base import Task
from gpubench_plugin.measure.clocks.host import CpuClock
from gpubench_plugin.measure.interval import median_interval
from gpubench_plugin.measure.loop import Variant, measure
from gpubench_plugin.ranks.agreement import RankAgreement
from tests.support.fake_cuda import FakeHost

if TYPE_CHECKING:
    from gpubench_plugin.core.records import Samples

Course = Callable[[float, int], float]

NS_PER_S: Final = 1_000_000_000


def measured(course: Course, *, step_s: float, profile: str | None = None, **keys: Any) -> Samples:
    """The samples of a step that takes `step_s` when steady, with the keys of `profile`."""
    host, calls = FakeHost(), 0

    def step() -> None:
        nonlocal calls
        host.spend(max(1, round(step_s * NS_PER_S * course(host.time_ns / NS_PER_S, calls))))
        calls += 1

    section = MeasureSection(**{**PROFILES.get(profile or "", {}), **keys})
    return measure(
        [Variant(task=Task(step=step), clock=CpuClock(host.now))],
        section=section,
        agreement=RankAgreement(),
    )[0]


def told(samples: Samples) -> tuple[float, float, float] | None:
    """Lower end, median and upper end of the interval that a reader sees; None: there is none."""
    interval = median_interval(samples.rounds_s)
    if interval is None or doubtful_flags(samples.flags):
        return None
    return interval.low, interval.median, interval.high


def independent(draws: random.Random, sd: float) -> Course:
    """Normal noise, each call for itself."""
    return lambda _, __: 1 + sd * draws.gauss()


def autoregressive(draws: random.Random, sd: float, phi: float) -> Course:
    """Normal noise of which a share `phi` stays from call to call: AR(1)."""
    state, rest = draws.gauss(), math.sqrt(1 - phi * phi)

    def course(_: float, __: int) -> float:
        nonlocal state
        state = phi * state + rest * draws.gauss()
        return 1 + sd * state

    return course


def modes(
    draws: random.Random, dwell: float, *, slow: float = 1.2, share: float = 0.5, sd: float = 0.003
) -> Course:
    """Two modes, 1x and for that `share` of the calls `slow`, which last `dwell` calls on average.

    Each lasts in proportion to its share.
    """
    state = draws.random() < share

    def course(_: float, __: int) -> float:
        nonlocal state
        if draws.random() < 1 / (2 * dwell * (share if state else 1 - share)):
            state = not state
        return (slow if state else 1.0) * (1 + sd * draws.gauss())

    return course


def levels(draws: random.Random, dwell: float, sd: float) -> Course:
    """Normal noise that stays for `dwell` calls on average, with a tenth of it on each call."""
    level = draws.gauss()

    def course(_: float, __: int) -> float:
        nonlocal level
        if draws.random() < 1 / dwell:
            level = draws.gauss()
        return 1 + sd * (level + 0.1 * draws.gauss())

    return course


def median_of_modes(slow: float = 1.2, share: float = 0.5, sd: float = 0.003) -> float:
    """The true median of :func:`modes`."""
    cdf, low, high = NormalDist().cdf, 1 - 6 * sd, slow * (1 + 6 * sd)
    while high - low > 1e-9:
        middle = (low + high) / 2
        below = (1 - share) * cdf((middle - 1) / sd) + share * cdf((middle / slow - 1) / sd)
        low, high = (middle, high) if below < 0.5 else (low, middle)
    return low


def decaying(first: float, constant_s: float) -> Course:
    """From `first` down to 1, by the factor e every `constant_s`."""
    return lambda now_s, _: 1 + (first - 1) * math.exp(-now_s / constant_s)


def slow_calls(calls: int, slow: float = 2.0) -> Course:
    """The first `calls` are slower."""
    return lambda _, call: slow if call < calls else 1.0


def leaking(each: float) -> Course:
    """Every call takes the share `each` of the first one's time longer than the one before."""
    return lambda _, call: 1 + each * call


def throttling(at_s: float, slow: float = 1.2) -> Course:
    """Fast for `at_s`, as on a boost clock, then at its steady 1."""
    return lambda now_s, _: 1 / slow if now_s < at_s else 1.0


def alternating(*times: float) -> Course:
    """These times in turn, strictly."""
    return lambda _, call: times[call % len(times)]


def noisy(course: Course, draws: random.Random, sd: float) -> Course:
    """The same with independent normal noise on top."""
    return lambda now_s, call: course(now_s, call) * (1 + sd * draws.gauss())
