"""What the timed blocks add up to."""

from __future__ import annotations

import json
import math
from array import array
from typing import Any

import numpy as np
import pytest

from gpubench_plugin.config.sections import MeasureSection
from gpubench_plugin.core.errors import MeasurementError
from gpubench_plugin.core.records import Observation, Samples, Work, round_medians
from gpubench_plugin.measure.clocks.base import Block
from gpubench_plugin.measure.metrics._all import compute_all
from gpubench_plugin.measure.plan import Plan
from gpubench_plugin.measure.recording import TimedBlocks
from gpubench_plugin.system import stored
from tests.support.virtual_steps import alternating, measured


def recording(width: int = 1, **keys: Any) -> TimedBlocks:
    return TimedBlocks(
        Plan(calls_per_duration=1, durations_per_round=width, rounds_per_block=1),
        MeasureSection(**keys),
    )


def block(*durations_s: float, **evidence: float) -> Block:
    return Block(
        durations_s=array("d", durations_s), length_s=1.5, calls=len(durations_s), evidence=evidence
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


TIMES = (*[1.0] * 17, *[1.8] * 5, *[8.0] * 2)
"""Durations of a step in units of 50 µs, of which 20 are a round."""


def timed(**keys: Any) -> Samples:
    """Samples of 10,000 durations of a step."""
    return measured(alternating(*TIMES), step_s=50e-6, by="steps", steps=10_000, **keys)


def metrics_of(samples: Samples) -> dict[str, float]:
    observation = Observation(
        samples=samples, work=Work(samples=1), device="cpu", device_name="", precision="",
        world_size=1,
    )  # fmt: skip
    return {name: metric.value for name, metric in compute_all(observation).items()}


def test_more_durations_than_are_kept_change_percentiles_only() -> None:
    """Median, interval, extremes, mean, rates and rounds are those of all; as JSON, too."""
    exact, few = timed(), timed(keep_durations=1000)
    assert (exact.sample_s, few.flags) == ((), (*exact.flags, "sampled"))
    assert (few.timing, few.rounds_s) == (exact.timing, exact.rounds_s)
    assert (few.block_s, few.block_calls) == (exact.block_s, exact.block_calls)
    assert len(few.sample_s) == 1000 + 2
    assert metrics_of(few) == pytest.approx(metrics_of(exact))  # of few values even percentiles
    assert stored.restore(Samples, json.loads(json.dumps(stored.dump(few))), "it") == few
    assert timed(keep_durations=1000) == few


@pytest.mark.parametrize(("kept", "is_sampled"), [(10_000, False), (9_999, True)])
def test_as_many_as_may_be_kept_are_no_sample(kept: int, is_sampled: bool) -> None:
    """The limit is on what is more; rounds of one duration, which the median needs, all stay."""
    assert ("sampled" in timed(keep_durations=kept).flags) == is_sampled
    assert not measured(alternating(1.0), step_s=2e-3, keep_durations=10).sample_s


@pytest.mark.parametrize("name", ["lognormal", "pareto", "rising"])
def test_the_sample_is_uniform(name: str) -> None:
    """Early and late durations are in it alike: quantiles are off by four standard deviations."""
    random, count, kept, width = np.random.default_rng(7), 400_000, 20_000, 1000
    values = 1e-3 * np.linspace(1, 2, count) if name == "rising" else 1e-3 * (
        1 + getattr(random, name)(0.5, size=count)
    )  # fmt: skip
    seen = recording(width=width, keep_durations=kept)
    for part in values.reshape(-1, 10 * width):
        seen.add(block(*part))
    sample = np.array(seen.sample_s)
    assert (seen.durations, seen.rounds, len(seen.durations_s)) == (count, count // width, 0)
    assert (sample[0], sample[-1], len(sample)) == (values.min(), values.max(), kept + 2)
    for fraction in (0.01, 0.25, 0.5, 0.75, 0.99):
        rank = np.searchsorted(np.sort(values), np.quantile(sample, fraction)) / count
        assert abs(rank - fraction) <= 4 * math.sqrt(fraction * (1 - fraction) / kept)
