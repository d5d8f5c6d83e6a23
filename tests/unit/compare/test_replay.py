"""What the gates make of launches that were really recorded, with slowdowns put in."""

from functools import partial

import numpy as np
import pytest

from tests.support import simulation as sim
from tests.support.exhaustive import shown
from tests.support.replay import FILE, Recording, stretched

SUITES = 1000
MODES = ("convolution", "softmax")
"""A few launches of these are a fifth slower than the others: nobody can catch as much there as
where all launches are alike."""


@pytest.mark.slow
@pytest.mark.parametrize("name", shown("matmul", exhaustively=Recording.names()))
def test_the_paired_gate_is_right_about_recorded_launches(name):
    """Few false alarms, five percent mostly caught, ten nearly always, neither called unchanged."""
    recording = Recording(name)
    assert sim.rates(sim.by_pairs(recording.draw(1), 0.0, 2 * SUITES), 0.0).alarms <= 0.01
    five = sim.rates(sim.by_pairs(recording.draw(1), 0.05, SUITES), 0.05)
    ten = sim.rates(sim.by_pairs(recording.draw(1), 0.10, SUITES), 0.10)
    least = (0.82, 0.96) if name in MODES else (0.9, 0.99)
    assert (five.caught >= least[0], ten.caught >= least[1]) == (True, True)
    assert (five.cleared <= 0.01, ten.cleared <= 0.01) == (True, True)


@pytest.mark.slow
@pytest.mark.parametrize("name", shown("matmul", exhaustively=Recording.names()))
def test_equal_heads_are_unchanged_where_launches_vary_by_half_a_percent(name):
    """In all three parts at 15 pairs, in at least nine of ten: with modes, stalls and all."""
    limits = {"floor": sim.LIMIT, "median": sim.LIMIT, "rate": sim.LOOSE}
    course = sim.step_times(Recording(name).parts(6, noise=0.005)(SUITES, 15), limits)
    assert (course.kinds[:, 0] == "unchanged").mean() >= 0.9


@pytest.mark.slow
def test_launches_that_followed_each_other_are_judged_as_well():
    """As ``gpubench ab`` makes them; a history takes a slow launch of one for a slow run."""
    for name in Recording.names():
        ratios = Recording(name).neighbours(1, SUITES, 15)
        assert sim.rates(sim.sequential(ratios).kinds, 0.0).alarms <= 0.01
        slow = sim.rates(sim.sequential(sim.slower(ratios, 0.05)).kinds, 0.05)
        least = 0.82 if name in MODES else 0.9
        assert (slow.caught >= least, slow.cleared <= 0.01) == (True, True)
    draw = Recording("matmul").draw(1)
    one = sim.rates(sim.by_history(draw, 0.0, SUITES), 0.0).alarms

    def medians(suites, runs):
        launches = draw(suites, 3 * runs).reshape(suites, sim.BENCHMARKS, runs, 3)
        return np.median(launches, axis=-1)

    three = sim.rates(sim.by_history(medians, 0.0, SUITES), 0.0).alarms
    assert one > 0.05
    assert three < one / 2


def test_the_recording_is_small():
    """It lies in the repository."""
    text = FILE.read_text(encoding="utf-8")
    assert len(text) < 400_000
    assert "fresh processes" in text.splitlines()[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "change", [{"every": (0, 1, 2), "of": 5, "by": 3.0}, {"every": (0,), "of": 8, "by": 10.0}]
)
@pytest.mark.parametrize("name", shown("matmul", exhaustively=Recording.names()))
def test_calls_that_are_slow_under_an_equal_floor_are_never_unchanged(name, change):
    """A median of three times as much; every 8th call ten times as long: called, or open."""
    limits = {"floor": sim.LIMIT, "median": sim.LIMIT, "rate": sim.LOOSE}
    drawn = Recording(name).parts(5, partial(stretched, **change))(SUITES // 2, 15)
    course = sim.step_times(drawn, limits)
    assert (course.kinds[:, 0] == "unchanged").mean() <= 0.01
    assert (course.kinds[:, 0] == "regressed").mean() >= 0.95
    assert (course.kinds[:, 1:] == "regressed").any(axis=1).mean() <= 0.02
