"""When measuring stops."""

from __future__ import annotations

from array import array
from typing import Any

import pytest

from gpubench_plugin.config import MeasureSection
from gpubench_plugin.measure import Looks, Plan, Recording, rule_for
from gpubench_plugin.measure.clocks import Block


def recorded(
    rounds: int, *, half_width: float = 1.0, per_block: int = 1, width: int = 1
) -> Recording:
    """A recording of so many rounds, looked at with this result."""
    recording = Recording(
        Plan(calls_per_duration=1, durations_per_round=width, rounds_per_block=per_block),
        MeasureSection(),
    )
    durations = array("d", [1.0] * rounds * width)
    if rounds:
        recording.add(Block(durations_s=durations, length_s=1.0, calls=rounds * width))
    recording.half_width = half_width
    return recording


def wanted(recording: Recording, elapsed_s: float = 0.0, **keys: Any) -> int:
    """The durations that the rule of these keys wants next."""
    return rule_for(MeasureSection(**keys)).durations(recording, elapsed_s)


def test_looks_double() -> None:
    """The interval is looked at when 10, 20, 40 … rounds are reached, each once."""
    looks = Looks(MeasureSection())
    assert [rounds for rounds in range(1, 201) if looks.due(rounds)] == [10, 20, 40, 80, 160]


def test_looks_that_were_passed_are_one() -> None:
    """A long block that passes several looks is looked at once."""
    looks = Looks(MeasureSection())
    assert [looks.due(rounds) for rounds in (50, 70, 100)] == [True, False, True]


def test_a_narrow_interval_stops() -> None:
    """By interval, 1 % is narrow enough."""
    assert wanted(recorded(10, half_width=0.0099)) == 0
    assert wanted(recorded(10, half_width=0.0101)) == 1


def test_the_most_rounds_stop() -> None:
    """By interval, the last block is shortened to the most rounds, then it is over."""
    assert wanted(recorded(190, per_block=50, width=3)) == 30
    assert wanted(recorded(200, per_block=50, width=3)) == 0


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
    assert [rule_for(MeasureSection(by=by)).converged(wide) for by in ("ci", "time", "steps")] == [
        False,
        True,
        True,
    ]
