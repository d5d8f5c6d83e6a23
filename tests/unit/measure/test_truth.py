"""Numbers of steps whose truth is known, on a virtual clock: right, or flagged.

The same simulations at length, beside what was told before: ``tools/evidence/interval.py`` and
``tools/evidence/steadiness.py``.
"""

from __future__ import annotations

from random import Random
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.core.quality_flags import doubtful_flags
from tests.support import virtual_steps as steps
from tests.support.exhaustive import shown

if TYPE_CHECKING:
    from gpubench_plugin.core.records import Samples
    from tests.support.virtual_steps import Course

RUNS = 60


def covered(course: Any, **keys: Any) -> float:
    """The share of intervals, of those told, that hold the true median 1."""
    told = [
        steps.told(steps.measured(course(Random(seed)), step_s=0.002, **keys))
        for seed in range(RUNS)
    ]
    held = [ends[0] <= 0.002 <= ends[2] for ends in told if ends]
    return sum(held) / len(held)


def right(samples: Samples, truth_s: float) -> bool:
    """Whether the median is within 2% of the truth, or in doubt."""
    off = abs(median(samples.rounds_s) / truth_s - 1)
    return off <= 0.02 or bool(doubtful_flags(samples.flags))


@pytest.mark.slow
def test_independent_rounds_are_covered() -> None:
    """The interval holds the truth as often as it says, although it is looked at repeatedly."""
    assert covered(lambda draws: steps.independent(draws, 0.03)) >= 0.93


@pytest.mark.slow
@pytest.mark.parametrize("phi", shown(exhaustively=[0.5, 0.9]))
def test_dependent_rounds_are_covered(phi: float) -> None:
    """Neighbours that resemble each other make the interval wider, not a lie."""
    assert covered(lambda draws: steps.autoregressive(draws, 0.02, phi)) >= 0.9


@pytest.mark.slow
@pytest.mark.parametrize(
    "modes", shown((5, 1.2, 0.5, 1.1), exhaustively=[(10, 1.2, 0.5, 1.1), (5, 3.0, 0.3, 2.0)])
)
def test_phases_are_covered(modes: tuple[float, float, float, float]) -> None:
    """Two modes that last for up to a twentieth of the time are told as wide as they are apart."""
    dwell, slow, share, step_ms = modes
    step_s = step_ms / 1000
    truth_s = steps.median_of_modes(slow, share) * step_s
    held = []
    for seed in range(RUNS):
        course = steps.modes(Random(seed), dwell, slow=slow, share=share)
        ends = steps.told(steps.measured(course, step_s=step_s))
        held += [ends[0] <= truth_s <= ends[2]] if ends else []
    assert len(held) >= 0.95 * RUNS
    assert sum(held) >= 0.9 * len(held)


def test_a_long_step_that_is_steady_is_in_no_doubt() -> None:
    """Calls of 6 s, equal to 0.01%, are too few for an interval, but nothing is wrong with them."""
    samples = steps.measured(steps.independent(Random(1), 0.0001), step_s=6.0)
    assert (samples.rounds, samples.flags) == (6, ())


CHANGING: list[tuple[str, Course, float, float]] = [
    ("decays from 2x within 1 s", steps.decaying(2.0, 1.0), 0.002, 1.0),
    ("decays from 2x within 1 s", steps.decaying(2.0, 1.0), 0.0005, 1.0),
    ("decays from 2x within 0.3 s", steps.decaying(2.0, 0.3), 0.0002, 1.0),
    ("decays from 1.2x within 0.1 s", steps.decaying(1.2, 0.1), 0.002, 1.0),
    ("50 slow calls", steps.slow_calls(50), 0.002, 1.0),
    ("leaks 0.1% with every call", steps.leaking(0.001), 0.002, 0.0),
    ("leaks 0.1% with every call", steps.leaking(0.001), 0.0005, 0.0),
]
LATE: list[tuple[str, Course, float, float]] = [
    ("600 slow calls", steps.slow_calls(600), 0.0005, 1.0),
    ("a boost clock for 0.5 s", steps.throttling(0.5), 0.002, 1.0),
]


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["quick", None, "full"])
@pytest.mark.parametrize(("what", "course", "step_s", "truth"), CHANGING)
def test_a_step_that_changes_early_is_right_or_in_doubt(
    profile: str | None, what: str, course: Course, step_s: float, truth: float
) -> None:
    """Whatever the profile, a change within the first 0.3 s is waited for or flagged."""
    samples = steps.measured(steps.noisy(course, Random(1), 0.005), step_s=step_s, profile=profile)
    assert right(samples, truth * step_s or 1e-9), (what, samples.flags)


@pytest.mark.parametrize(("what", "course", "step_s", "truth"), LATE)
def test_a_step_that_changes_late_is_right_or_in_doubt_in_full(
    what: str, course: Course, step_s: float, truth: float
) -> None:
    """A second of measuring sees what half a second hides."""
    samples = steps.measured(steps.noisy(course, Random(1), 0.005), step_s=step_s, profile="full")
    assert right(samples, truth * step_s), (what, samples.flags)


def test_a_leak_is_drifting() -> None:
    """A step that takes 0.1% longer with every call has a trend, not a median."""
    samples = steps.measured(steps.leaking(0.001), step_s=0.002)
    assert {"drifting", "unsteady"} <= {*samples.flags}


def test_a_change_while_it_is_timed_has_no_interval() -> None:
    """A step that has become slower by a fifth in the midst of the timed rounds has two medians."""
    samples = steps.measured(steps.throttling(0.5), step_s=0.002, by="time", time_s=0.6)
    assert samples.flags == ("dependent",)


@pytest.mark.parametrize("step_s", [0.002, 0.02])
@pytest.mark.parametrize("times", [(1.0, 2.0), (1.0, 1.0, 2.0)])
def test_strict_alternation_is_steady(times: tuple[float, ...], step_s: float) -> None:
    """Calls that take 1x and 2x in turn are stationary: no trend, and no wait for one to end."""
    samples = steps.measured(steps.alternating(*times), step_s=step_s)
    assert not {"unsteady", "drifting", "dependent"}.intersection(samples.flags)
    assert sum(samples.warmup_s) < 0.1 + 10 * 2 * step_s


@pytest.mark.slow
@pytest.mark.parametrize("sd", shown(0.02, exhaustively=[0.005, 0.05]))
@pytest.mark.parametrize("step_s", shown(0.002, exhaustively=[0.02]))
def test_clean_noise_raises_no_doubt_but_that_it_is_wide(sd: float, step_s: float) -> None:
    """Independent normal noise is hardly ever taken for a trend, for dependence or for outliers."""
    runs = [
        steps.measured(steps.independent(Random(seed), sd), step_s=step_s) for seed in range(RUNS)
    ]
    for flag in ("unsteady", "drifting", "dependent", "outliers"):
        assert sum(flag in samples.flags for samples in runs) <= 0.04 * RUNS, flag
