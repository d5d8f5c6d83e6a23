from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from gpubench_plugin.core.records import RoundLayout
from gpubench_plugin.measure.metrics.step_time import step_time
from tests.support.observations import observe, sampled, timed

if TYPE_CHECKING:
    from gpubench_plugin.core.records import Observation


def computed(seen: Observation) -> dict[str, float]:
    return {metric.name: metric.value for metric in step_time(seen)}


def test_the_statistics_of_ten_calls() -> None:
    """Of 0.1 to 1.0 s, worked out by hand; the 95% interval of ten goes from 2nd to 9th."""
    assert computed(observe()) == pytest.approx(
        {
            "rounds": 10,
            "step_time_s": 0.55,
            "step_time_ci_low_s": 0.2,
            "step_time_ci_high_s": 0.9,
            "step_time_mean_s": 0.55,
            "step_time_min_s": 0.1,
            "step_time_max_s": 1.0,
            # Four of them are all above 0.175 with probability one half, eight hardly above 0.1.
            "step_time_min_of_4_s": 0.1 * 11 * (1 - 0.5**0.25),
            "step_time_min_of_8_s": 0.1,
        }
    )


@pytest.mark.parametrize(
    ("count", "names"), [(19, []), (20, ["p95"]), (99, ["p95"]), (100, ["p95", "p99"])]
)
@pytest.mark.parametrize("is_sampled", [False, True])
def test_a_percentile_needs_a_duration_beyond_it(
    count: int, names: list[str], is_sampled: bool
) -> None:
    """The 95th 20 durations, the 99th 100; of a sample what it is of counts."""
    durations_s = [0.001 * (1 + n) for n in range(count)]
    samples = sampled(durations_s=tuple(durations_s))
    if is_sampled:
        timed = RoundLayout(durations=count, calls_per_duration=1, durations_per_round=2)
        rounds_s = tuple(durations_s[::2])
        samples = sampled(durations_s=rounds_s, sample_s=tuple(durations_s), reduced_from=timed)
    metrics = computed(observe(samples=samples))
    assert [name for name in ("p95", "p99") if f"step_time_{name}_s" in metrics] == names
    for name in names:
        exact = np.quantile(durations_s, float(name[1:]) / 100)
        assert metrics[f"step_time_{name}_s"] == pytest.approx(exact)


def test_the_level_of_the_interval_is_a_fact() -> None:
    """At 99% ten values are enclosed from the first to the last."""
    metrics = computed(observe(facts={"confidence": 0.99}))
    assert (metrics["step_time_ci_low_s"], metrics["step_time_ci_high_s"]) == (0.1, 1.0)


def test_too_few_calls_have_no_interval() -> None:
    """Five calls cannot enclose a median at 95%: it stands alone."""
    metrics = computed(observe(samples=sampled(durations_s=(0.1, 0.2, 0.3, 0.4, 0.5))))
    assert (metrics["step_time_s"], "step_time_ci_low_s" in metrics) == (0.3, False)


def test_median_and_interval_are_of_the_rounds() -> None:
    """Rounds of three hide one slow call in each from the median, not from the maximum."""
    durations_s = tuple(time_s for n in range(6) for time_s in (1.0 + n, 9.0, 1.0 + n))
    metrics = computed(observe(samples=sampled(durations_s=durations_s, durations_per_round=3)))
    names = ("step_time_ci_low_s", "step_time_s", "step_time_ci_high_s", "step_time_max_s")
    assert [metrics[name] for name in names] == [1.0, 3.5, 6.0, 9.0]


def test_durations_that_fill_no_round_still_have_a_median() -> None:
    """Where not a single round came together the median is that of the durations."""
    seen = observe(samples=sampled(durations_s=(0.1, 0.3, 0.2), durations_per_round=100))
    assert computed(seen)["step_time_s"] == 0.2


def test_the_longest_call_is_known_though_not_all_could_be_sent() -> None:
    """The ranks tell their own longest, which condensed samples may lack."""
    metrics = computed(observe(ranks=(timed(0), timed(1, max_s=7.0)), world_size=2))
    assert metrics["step_time_max_s"] == 7.0
