"""When measuring stops."""

from __future__ import annotations

from array import array
from random import Random
from typing import Any

import pytest

from gpubench_plugin.config.sections import MeasureSection
from gpubench_plugin.core.quality_flags import NOT_CONVERGED
from gpubench_plugin.measure.clocks.base import Block
from gpubench_plugin.measure.plan import Plan
from gpubench_plugin.measure.recording import TimedBlocks
from gpubench_plugin.measure.stopping import CheckSchedule, make_rule
from tests.support.virtual_steps import independent, measured


def recorded(
    rounds: int, *, half_width: float = 1.0, per_block: int = 1, width: int = 1
) -> TimedBlocks:
    """A recording of so many rounds, looked at with this result."""
    recording = TimedBlocks(
        Plan(calls_per_duration=1, durations_per_round=width, rounds_per_block=per_block),
        MeasureSection(),
    )
    durations = array("d", [1.0] * rounds * width)
    if rounds:
        recording.add(Block(durations_s=durations, length_s=1.0, calls=rounds * width))
    recording.half_width = half_width
    return recording


def wanted(recording: TimedBlocks, elapsed_s: float = 0.0, **keys: Any) -> int:
    """The durations that the rule of these keys wants next."""
    return make_rule(MeasureSection(**keys)).durations(recording, elapsed_s)


def test_looks_double() -> None:
    """The interval is looked at when 10, 20, 40 … rounds are reached, each once."""
    looks = CheckSchedule(MeasureSection())
    seen = [rounds for rounds in range(1, 201) if looks.due(rounds, 0.0)]
    assert seen == [10, 20, 40, 80, 160]


def test_the_least_time_is_a_look() -> None:
    """When it is over, the interval is looked at once, whatever the rounds."""
    looks = CheckSchedule(MeasureSection(min_time_s=0.2))
    times = [(7, 0.1), (15, 0.19), (16, 0.2), (17, 0.3), (19, 0.4), (20, 0.5)]
    assert [rounds for rounds, s in times if looks.due(rounds, s)] == [15, 16, 20]


def test_all_looks_together_err_as_one() -> None:
    """Each is stricter than the interval that is reported: there are six at most."""
    assert pytest.approx(0.99375) == CheckSchedule(MeasureSection()).confidence
    assert pytest.approx(0.9875) == CheckSchedule(MeasureSection(confidence=0.9)).confidence


def test_looks_that_were_passed_are_one() -> None:
    """A long block that passes several looks is looked at once."""
    looks = CheckSchedule(MeasureSection())
    assert [looks.due(rounds, 0.0) for rounds in (50, 70, 100)] == [True, False, True]


def test_a_narrow_interval_stops() -> None:
    """By interval, 1% is narrow enough."""
    assert wanted(recorded(10, half_width=0.0099), elapsed_s=0.2) == 0
    assert wanted(recorded(10, half_width=0.0101), elapsed_s=0.2) == 1


def test_a_narrow_interval_does_not_stop_before_the_least_time() -> None:
    """By interval, what looks known after a moment is measured on."""
    assert wanted(recorded(10, half_width=0.0099), elapsed_s=0.19) == 1
    assert wanted(recorded(10, half_width=0.0099), elapsed_s=0.19, min_time_s=0.1) == 0


def test_dependent_rounds_go_on() -> None:
    """By interval, a narrow one of few rounds that stand for themselves stops nothing."""
    recording = recorded(100, half_width=0.0099)
    recording.dependent = True
    assert wanted(recording, elapsed_s=0.2) == 1
    assert wanted(recorded(500), elapsed_s=0.5) == 0


def test_rounds_too_few_to_judge_that_are_widely_spread_go_on() -> None:
    """By interval, a narrow one of what may be modes stops nothing, but the limits do."""
    recording = recorded(80, half_width=0.0099)
    recording.is_unreliable = True
    assert wanted(recording, elapsed_s=0.2) == 1
    assert wanted(recording, elapsed_s=3.0) == 0


def test_contended_rounds_go_on_within_the_time() -> None:
    """By interval, neither a narrow one nor the most rounds stop while others hold us up."""
    recording = recorded(500, half_width=0.0099)
    recording.contended = True
    assert wanted(recording, elapsed_s=0.5) == 1
    assert wanted(recording, elapsed_s=3.0) == 0


def test_the_most_rounds_stop() -> None:
    """By interval, the last block is shortened to the most rounds, then it is over."""
    assert wanted(recorded(490, per_block=50, width=3), elapsed_s=0.5) == 30
    assert wanted(recorded(500, per_block=50, width=3), elapsed_s=0.5) == 0


def test_before_the_least_time_rounds_are_not_counted() -> None:
    """By interval, the most rounds are those of short steps: these fill the least time first."""
    assert wanted(recorded(500, per_block=50), elapsed_s=0.1) == 50


@pytest.mark.parametrize("keys", [{"by": "ci"}, {"by": "time"}])
def test_the_time_stops(keys: dict[str, Any]) -> None:
    """By interval and by time, a block is shortened to the time that is left, then it is over."""
    assert wanted(recorded(10, per_block=50), elapsed_s=2.0, **keys) == 5
    assert wanted(recorded(10, per_block=50), elapsed_s=2.95, **keys) == 1
    assert wanted(recorded(10, per_block=50), elapsed_s=3.0, **keys) == 0


@pytest.mark.parametrize("keys", [{"max_time_s": 1e-9}, {"by": "time", "time_s": 1e-9}])
def test_there_is_a_first_block_in_any_case(keys: dict[str, Any]) -> None:
    """A limit that is over before the first block does not leave us without a sample."""
    assert wanted(recorded(0), elapsed_s=1.0, **keys) == 1


def test_by_time_narrow_intervals_go_on() -> None:
    """By time, the interval stops nothing."""
    assert wanted(recorded(1000, half_width=1e-6), elapsed_s=1.0, by="time") == 1


def test_by_steps_exactly_these_are_run() -> None:
    """By steps, the last block holds those that are missing, even if that is no whole round."""
    assert wanted(recorded(40, per_block=4, width=1), by="steps", steps=50) == 4
    assert wanted(recorded(16, per_block=1, width=3), by="steps", steps=50) == 2
    assert wanted(recorded(50), elapsed_s=99.0, by="steps", steps=50) == 0


def test_only_the_interval_can_be_missed() -> None:
    """A rule without an aim has always reached it."""
    wide = recorded(10, half_width=0.5)
    assert [make_rule(MeasureSection(by=by)).converged(wide) for by in ("ci", "time", "steps")] == [
        False,
        True,
        True,
    ]


def test_a_long_step_has_the_fewest_rounds_though_the_least_time_is_over() -> None:
    """However narrow its interval is before."""
    samples = measured(lambda *_: 1.0, step_s=0.024, min_rounds=60, ci_half_width=0.05)
    assert samples.rounds == 60


@pytest.mark.parametrize("profile", [None, "quick"])
def test_a_step_of_which_the_limit_holds_few_has_the_fewest_rounds(profile: str | None) -> None:
    """Quiet as it is, ten of them tell its median: no interval is missed."""
    course = independent(Random(1), 0.001)
    samples = measured(course, step_s=0.4, profile=profile)
    assert samples.rounds == 10
    assert NOT_CONVERGED not in samples.flags
