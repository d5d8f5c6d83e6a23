"""Several launches as one measurement."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from gpubench_plugin.core.records import LaunchSample, Measurement, Metric, Samples
from gpubench_plugin.measure.merged_launches import merge_launches


def measured(
    seconds: float, *, more: dict[str, float] | None = None, **changes: Any
) -> Measurement:
    """A launch whose two calls took `seconds` each."""
    samples = Samples(
        timer="a clock",
        durations_s=(seconds, seconds),
        block_s=(2 * seconds,),
        block_calls=(2,),
        first_step_s=10 * seconds,
        warmup_s=(seconds,),
        warmup_calls=1,
        flags=("outliers",),
    )
    metrics = {"step_time_s": seconds, **(more or {})}
    return Measurement(
        id="test_x.py::test_x",
        name="test_x",
        params={},
        world_size=2,
        outcome="measured",
        configuration=changes.pop("configuration", {}),
        samples=samples,
        metrics={n: Metric(name=n, value=v, unit="s", better="lower") for n, v in metrics.items()},
        **changes,
    )


def test_one_launch_is_itself() -> None:
    """Nothing is added to a single launch."""
    only = measured(1.0)
    assert merge_launches([only]) is only


def test_what_stays_in_memory_has_the_samples_of_no_launch() -> None:
    """The metrics of each launch are kept: they are what comparisons read."""
    kept = merge_launches([measured(1.0), measured(2.0)]).without_samples()
    assert [kept.samples, *(launch.samples for launch in kept.per_launch)] == [None] * 3
    assert [launch.metrics["step_time_s"].value for launch in kept.per_launch] == [1.0, 2.0]


def test_metric_is_the_median_of_the_launches_and_each_is_kept() -> None:
    """A bad launch does not move the number; all samples are there, together and apart."""
    launches = [
        measured(1.0, flags=("unsteady",)),
        measured(9.0, more={"only_here_s": 1.0}),
        measured(2.0, flags=("unsteady", "contended")),
    ]

    merged = merge_launches(launches)

    assert merged.launches == 3
    assert merged.metrics["step_time_s"].value == 2.0
    assert "only_here_s" not in merged.metrics
    assert merged.samples is not None
    assert merged.samples.durations_s == (1.0, 1.0, 9.0, 9.0, 2.0, 2.0)
    assert (merged.samples.block_s, merged.samples.block_calls) == ((2.0, 18.0, 4.0), (2, 2, 2))
    assert (merged.samples.first_step_s, merged.samples.warmup_calls) == (90.0, 3)
    assert merged.samples.flags == ("outliers",)
    assert merged.flags == ("unsteady", "contended")
    assert merged.per_launch == tuple(
        LaunchSample(samples=one.samples, metrics=one.metrics, flags=one.flags) for one in launches
    )


def ends(merged: Measurement, *names: str) -> list[float]:
    return [merged.metrics[name].value for name in names]


STEP = ("step_time_ci_low_s", "step_time_s", "step_time_ci_high_s")
RATE = ("samples_ci_low_per_s", "samples_per_s", "samples_ci_high_per_s")


def test_the_interval_is_over_the_launches() -> None:
    """Worked out by hand: logs 0 and ±0.1, t of two degrees of freedom 4.3027, over √3."""
    tight = {"step_time_ci_low_s": 0.999, "step_time_ci_high_s": 1.001}
    launches = [
        measured(math.exp(log), more={**tight, "samples_per_s": 8 / math.exp(log)})
        for log in (0.0, 0.1, -0.1)
    ]
    merged = merge_launches(launches)
    reach = 4.302652729911275 * 0.1 / math.sqrt(3)
    assert ends(merged, *STEP) == pytest.approx([math.exp(-reach), 1.0, math.exp(reach)])
    assert ends(merged, *RATE) == pytest.approx([8 * math.exp(-reach), 8.0, 8 * math.exp(reach)])


def test_two_launches_know_little() -> None:
    """They differ by 1%, each sure to 0.1%: the truth may be 6% off."""
    low, middle, high = ends(merge_launches([measured(1.0), measured(1.01)]), *STEP)
    assert (low, middle, high) == pytest.approx((0.943, 1.005, 1.071), abs=1e-3)


@pytest.mark.parametrize("slower", [1.5, 3.0, 1000.0])
def test_the_interval_over_launches_never_reaches_zero(slower: float) -> None:
    """Around the mean of two launches Student's interval would be negative from 1.18 times on."""
    low, middle, high = ends(merge_launches([measured(1.0), measured(slower)]), *STEP)
    assert 0 < low < 1.0 < middle < slower < high
    assert low * high == pytest.approx(slower)


def test_the_interval_over_launches_holds_their_median_and_is_of_the_level_that_was_asked_for() -> (
    None
):
    """Also where one of many launches is far out; more confidence is a wider interval."""
    far = [1.0] * 9 + [1000.0]
    widths = []
    for confidence in (0.9, 0.99):
        asked = {"configuration": {"measure": {"confidence": confidence}}}
        low, middle, high = ends(merge_launches([measured(s, **asked) for s in far]), *STEP)
        assert low <= middle == 1.0 <= high
        widths.append(high - low)
    assert widths[0] < widths[1]


def test_a_rate_of_nothing_has_no_interval() -> None:
    """One of a benchmark's own: it has no logarithm, and is no reason to lose the others."""
    merged = merge_launches([measured(1.0, more={"errors_per_s": n}) for n in (0.0, 2.0)])
    assert merged.metrics["errors_per_s"].value == 1.0
    assert "errors_ci_low_per_s" not in merged.metrics


@pytest.mark.parametrize("count", [2, 3, 5])
def test_the_interval_over_launches_covers_the_true_step(count: int) -> None:
    """In 95 of 100 runs, where a launch's own interval of 0.1% would hardly ever."""
    chance, covered, trials = random.Random(5), 0, 1000
    for _ in range(trials):
        values = [math.exp(chance.gauss(0, 0.03)) for _ in range(count)]
        low, _, high = ends(merge_launches([measured(value) for value in values]), *STEP)
        covered += low <= 1.0 <= high
    assert covered >= 0.93 * trials
