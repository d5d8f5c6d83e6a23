"""What the timed blocks add up to."""

from __future__ import annotations

import math
from array import array
from typing import Any

import pytest

from gpubench_plugin.config.sections import MeasureSection
from gpubench_plugin.core.errors import MeasurementError
from gpubench_plugin.core.records import round_medians
from gpubench_plugin.measure.clocks.base import Block
from gpubench_plugin.measure.plan import Plan
from gpubench_plugin.measure.recording import Recording


def recording(width: int = 1, **keys: Any) -> Recording:
    return Recording(
        Plan(calls_per_duration=1, durations_per_round=width, rounds_per_block=1),
        MeasureSection(**keys),
    )


def block(*durations_s: float, **evidence: float) -> Block:
    return Block(
        durations_s=array("d", durations_s),
        length_s=1.5,
        calls=len(durations_s),
        evidence=evidence,
    )


def test_blocks_add_up() -> None:
    """Durations follow each other, blocks stand side by side, evidence is summed by name."""
    seen = recording(width=2)
    seen.add(block(1.0, 3.0, 5.0, 5.0, late=1, wall=10))
    seen.add(block(2.0, 2.0, late=2, wall=20))
    assert list(seen.durations_s) == [1, 3, 5, 5, 2, 2]
    assert list(seen.rounds_s) == [2, 5, 2]
    assert (list(seen.block_s), list(seen.block_calls)) == ([1.5, 1.5], [4, 2])
    assert seen.evidence == {"late": 3, "wall": 30}
    assert seen.rounds == 3


@pytest.mark.parametrize("wrong", [0.0, -1e-9, math.nan, math.inf, -math.inf])
def test_what_cannot_be_a_duration_is_refused(wrong: float) -> None:
    """A zero, negative or non-finite duration is an error that names it."""
    with pytest.raises(MeasurementError, match=f"lasted {wrong} s"):
        recording().add(block(1.0, wrong, 2.0))


def test_the_half_width_is_unknown_before_a_look() -> None:
    """It is infinite at first and with too few rounds, then that of the rounds so far."""
    seen = recording()
    assert seen.half_width == math.inf
    seen.add(block(1.0, 2.0))
    seen.update_interval(0.95)
    assert seen.half_width == math.inf
    seen.add(block(3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0))
    seen.update_interval(0.95)
    assert seen.half_width == (9 - 2) / 2 / 5.5
    assert not seen.dependent


def test_a_round_that_is_not_whole_is_left_out() -> None:
    """Two durations left over make no round of three."""
    assert list(round_medians([1.0, 2.0, 9.0, 4.0, 5.0], 3)) == [2.0]
