"""When measuring stops."""

from __future__ import annotations

from array import array
from random import Random
from typing import Any

import pytest

from gpubench_plugin.config.sections import MeasureSection
from gpubench_plugin.measure.clocks.base import Block
from gpubench_plugin.measure.plan import Plan
from gpubench_plugin.measure.recording import TimedBlocks
from gpubench_plugin.measure.stopping import CheckSchedule, make_rule
from tests.support.virtual_steps import independent, measured, modes


def recorded(
    rounds: int, *, half_width: float = 1.0, per_block: int = 1, width: int = 1, state: str = ""
) -> TimedBlocks:
    """A recording of so many rounds, looked at with this result, and in this `state`, if any."""
    recording = TimedBlocks(
        Plan(calls_per_duration=1, durations_per_round=width, rounds_per_block=per_block),
        MeasureSection(),
    )
    durations = array("d", [1.0] * rounds * width)
    if rounds:
        recording.add(Block(durations_s=durations, length_s=1.0, calls=rounds * width))
    recording.half_width = half_width
    if state:
        setattr(recording, state, True)
    return recording


def test_looks_double() -> None:
    """The interval is looked at after the fewest rounds, and ¾, ½, ¼ … of the most, each once."""
    looks = CheckSchedule(MeasureSection())
    seen = [rounds for rounds in range(1, 401) if looks.due(rounds, 1.0)]
    assert seen == [10, 13, 25, 50, 100, 200, 300]


def test_the_least_time_is_a_look() -> None:
    """The first, whatever the rounds: before it nothing stops."""
    looks = CheckSchedule(MeasureSection(min_time_s=0.2))
    times = [(7, 0.1), (15, 0.19), (16, 0.2), (17, 0.3), (24, 0.4), (25, 0.5)]
    assert [rounds for rounds, s in times if looks.due(rounds, s)] == [16, 25]


def test_all_looks_together_err_as_one() -> None:
    """Each is stricter than the interval that is reported."""
    assert pytest.approx(0.99375) == CheckSchedule(MeasureSection()).confidence
    assert pytest.approx(0.9875) == CheckSchedule(MeasureSection(confidence=0.9)).confidence


def test_looks_that_were_passed_are_one() -> None:
    """A long block that passes several looks is looked at once."""
    looks = CheckSchedule(MeasureSection())
    assert [looks.due(rounds, 1.0) for rounds in (50, 70, 100)] == [True, False, True]


NARROW, BLOCKS = {"half_width": 0.0099}, {"per_block": 50}
STEPS, TIME = {"by": "steps", "steps": 50}, {"by": "time"}


@pytest.mark.parametrize(
    ("rounds", "recording", "elapsed_s", "keys", "durations"),
    [
        pytest.param(10, NARROW, 0.2, {}, 0, id="narrow"),
        pytest.param(10, {"half_width": 0.0101}, 0.2, {}, 1, id="wide"),
        pytest.param(10, NARROW, 0.19, {}, 1, id="narrow before the least time"),
        pytest.param(10, NARROW, 0.19, {"min_time_s": 0.1}, 0, id="narrow after a shorter one"),
        pytest.param(100, {**NARROW, "state": "dependent"}, 0.2, {}, 1, id="narrow, dependent"),
        pytest.param(80, {**NARROW, "state": "is_unreliable"}, 0.2, {}, 1, id="narrow, modes"),
        pytest.param(80, {**NARROW, "state": "is_unreliable"}, 3.0, {}, 0, id="modes, time over"),
        pytest.param(200, {}, 0.5, {}, 0, id="half the most"),
        pytest.param(200, {"state": "dependent"}, 0.5, {}, 0, id="half the most, dependent"),
        pytest.param(399, {"state": "lacks_interval"}, 0.5, {}, 1, id="no interval"),
        pytest.param(400, {"state": "lacks_interval"}, 0.5, {}, 0, id="most, no interval"),
        pytest.param(4, {}, 0.5, {"max_rounds": 7, "min_rounds": 2}, 0, id="half of an odd most"),
        pytest.param(190, {**BLOCKS, "width": 3}, 0.5, {}, 30, id="a block shortened to the most"),
        pytest.param(200, {**BLOCKS, "width": 3}, 0.5, {}, 0, id="half of three durations"),
        pytest.param(200, BLOCKS, 0.1, {}, 50, id="half the most before the least time"),
        *(
            pytest.param(10, BLOCKS, elapsed_s, keys, durations, id=f"{name}, {elapsed_s} s")
            for name, keys in (("interval", {}), ("time", TIME))
            for elapsed_s, durations in ((2.0, 5), (2.95, 1), (3.0, 0))
        ),
        pytest.param(0, {}, 1.0, {"max_time_s": 1e-9}, 1, id="first block, interval"),
        pytest.param(0, {}, 1.0, {**TIME, "time_s": 1e-9}, 1, id="first block, time"),
        pytest.param(1000, {"half_width": 1e-6}, 1.0, TIME, 1, id="time, narrow"),
        pytest.param(40, {"per_block": 4}, 0.0, STEPS, 4, id="steps"),
        pytest.param(16, {"width": 3}, 0.0, STEPS, 2, id="steps, no whole round"),
        pytest.param(50, {}, 99.0, STEPS, 0, id="steps, all"),
    ],
)
def test_the_next_block_is_as_long_as_the_rule_wants(
    rounds: int, recording: dict[str, Any], elapsed_s: float, keys: dict[str, Any], durations: int
) -> None:
    """Zero to stop: at the goal, or at the limits of rounds and time."""
    rule = make_rule(MeasureSection(**keys))
    assert rule.durations(recorded(rounds, **recording), elapsed_s) == durations


def test_only_rounds_without_an_interval_go_on_to_the_most() -> None:
    """Long phases have one then, or at three quarters; noise has a wide one before.

    So do few: 4 rounds have none, 6 have one.
    """
    noise = measured(independent(Random(1), 0.2), step_s=0.001)
    phases = [measured(modes(Random(seed), 70, slow=1.2), step_s=0.001) for seed in (1, 10)]
    few = measured(independent(Random(1), 0.2), step_s=0.1, min_rounds=2, max_rounds=8)
    assert [samples.rounds for samples in (noise, *phases, few)] == [200, 300, 400, 6]
    assert not any(samples.flags for samples in (noise, *phases))


def test_a_long_step_has_the_fewest_rounds_though_the_least_time_is_over() -> None:
    """However narrow its interval is before."""
    samples = measured(lambda *_: 1.0, step_s=0.024, min_rounds=60, ci_half_width=0.05)
    assert samples.rounds == 60


@pytest.mark.parametrize("profile", [None, "quick"])
def test_a_step_of_which_the_limit_holds_few_has_the_fewest_rounds(profile: str | None) -> None:
    """Quiet as it is, ten of them tell its median."""
    course = independent(Random(1), 0.001)
    samples = measured(course, step_s=0.4, profile=profile)
    assert samples.rounds == 10
    assert samples.flags == ()
