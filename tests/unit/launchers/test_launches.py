"""Several launches as one measurement."""

from __future__ import annotations

from typing import Any

from gpubench_plugin.launchers.gang import over_launches
from gpubench_plugin.records import Launch, Measurement, Metric, Samples


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
        configuration={},
        samples=samples,
        metrics={n: Metric(name=n, value=v, unit="s", better="lower") for n, v in metrics.items()},
        **changes,
    )


def test_one_launch_is_itself() -> None:
    """Nothing is added to a single launch."""
    only = measured(1.0)
    assert over_launches([only]) is only


def test_what_stays_in_memory_has_the_samples_of_no_launch() -> None:
    """The metrics of each launch are kept: they are what comparisons read."""
    kept = over_launches([measured(1.0), measured(2.0)]).without_samples()
    assert [kept.samples, *(launch.samples for launch in kept.per_launch)] == [None] * 3
    assert [launch.metrics["step_time_s"].value for launch in kept.per_launch] == [1.0, 2.0]


def test_metric_is_the_median_of_the_launches_and_each_is_kept() -> None:
    """A bad launch does not move the number; all samples are there, together and apart."""
    launches = [
        measured(1.0, flags=("unsteady",)),
        measured(9.0, more={"only_here_s": 1.0}),
        measured(2.0, flags=("unsteady", "contended")),
    ]

    merged = over_launches(launches)

    assert merged.launches == 3
    assert {name: metric.value for name, metric in merged.metrics.items()} == {"step_time_s": 2.0}
    assert merged.samples is not None
    assert merged.samples.durations_s == (1.0, 1.0, 9.0, 9.0, 2.0, 2.0)
    assert (merged.samples.block_s, merged.samples.block_calls) == ((2.0, 18.0, 4.0), (2, 2, 2))
    assert (merged.samples.first_step_s, merged.samples.warmup_calls) == (90.0, 3)
    assert merged.samples.flags == ("outliers",)
    assert merged.flags == ("unsteady", "contended")
    assert merged.per_launch == tuple(
        Launch(samples=one.samples, metrics=one.metrics, flags=one.flags) for one in launches
    )
