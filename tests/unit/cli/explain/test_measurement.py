"""A measurement that was not compared, explained."""

from __future__ import annotations

from collections.abc import Callable

from gpubench_plugin.cli.explain.measurement import explain_measurement
from gpubench_plugin.core.quality_flags import MEANINGS
from gpubench_plugin.core.records import LaunchSample, Measurement, Metric, Samples
from tests.support.messages import mentions

SAMPLES = Samples(
    timer="perf_counter_ns",
    durations_s=(0.010, 0.012, 0.011, 0.013),
    durations_per_round=2,
    block_s=(0.046,),
    block_calls=(4,),
    first_step_s=0.5,
    warmup_s=(0.02, 0.03),
    warmup_calls=5,
)


def test_a_number_rests_on_its_rounds_and_its_warm_up(measured: Callable[..., Measurement]) -> None:
    """In the order of time; without an interval it says that there are too few."""
    doubtful = measured(samples=SAMPLES, flags=("drifting",))
    about = explain_measurement("r1", doubtful, None)
    assert [point.values["step_time_s"] for point in about.points] == [0.011, 0.012]
    assert about.subject == "run r1: measured, not compared"
    number, calls, *others = about.facts
    assert mentions(number, "step_time_s: median 11.00 ms; too few independent rounds")
    assert mentions(calls, "4 calls in 1 block", "perf_counter_ns: 2 rounds of 2 durations of 1")
    warm_up = "warm-up: first call 500.0 ms, then 5 calls in 50.00 ms"
    assert others == [warm_up, f"drifting: {MEANINGS['drifting']}"]
    assert mentions(about.advice[0].text, "drifting: ", "find what grows")
    assert "--launches=3" in about.advice[1].text


def test_of_several_launches_each_is_a_dot(measured: Callable[..., Measurement]) -> None:
    """With its own flags; what was not measured has its outcome and no numbers."""
    step = Metric(name="step_time_s", value=0.01, unit="s", better="lower")
    launch = LaunchSample(samples=None, metrics={"step_time_s": step}, flags=("contended",))
    about = explain_measurement("r1", measured(per_launch=(launch, launch)), None)
    assert (about.noun, len(about.points)) == ("launch", 2)
    assert about.points[0].flags == ("contended",)
    assert not any("--launches" in one.text for one in about.advice)
    skipped = measured(outcome="skipped", reason="no GPU", samples=None, metrics={})
    about = explain_measurement("r1", skipped, None)
    assert about.subject == "run r1: skipped, not compared: no GPU"
    assert (about.points, about.facts, about.advice) == ((), (), ())
