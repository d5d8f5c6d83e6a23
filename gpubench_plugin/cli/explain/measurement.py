"""Explanation of a single measurement: rounds, warm-up, flags, and how to narrow it."""

from __future__ import annotations

from collections.abc import Iterator

from gpubench_plugin.core.format import counted
from gpubench_plugin.core.quality_flags import MEANINGS, doubtful_flags, explanation
from gpubench_plugin.core.records import STEP_TIME, Measurement, Samples, confidence_bounds_of
from gpubench_plugin.reports.explanation import Explanation, PlotPoint, Recommendation
from gpubench_plugin.reports.verdicts import kind_text, number
from gpubench_plugin.results.verdicts import VerdictDocument


def explain_measurement(
    run_id: str, measurement: Measurement, document: VerdictDocument | None
) -> Explanation:
    """Explain what the number of a `measurement` is based on.

    The run's verdicts in `document` say why it was not compared.
    """
    measured = measurement.outcome == "measured"
    reason = f": {measurement.reason}" if measurement.reason else ""
    return Explanation(
        benchmark=measurement.id,
        subject=f"run {run_id}: {kind_text(measurement.outcome)}, not compared{reason}",
        noun="launch" if len(measurement.per_launch) > 1 else "round",
        points=tuple(_points(measurement)),
        units={STEP_TIME: "s"} if measured else {},
        verdicts=() if document is None else document.for_benchmark(measurement.id),
        notes=() if document is None else tuple(document.notes),
        facts=tuple(_facts(measurement)) if measured else (),
        advice=tuple(_advice(measurement)) if measured else (),
    )


def _points(measurement: Measurement) -> Iterator[PlotPoint]:
    """The launches, or the rounds of a single one, in time order."""
    launches = measurement.per_launch
    if len(launches) > 1:
        for position, launch in enumerate(launches, start=1):
            values = {name: m.value for name, m in launch.metrics.items() if name == STEP_TIME}
            yield PlotPoint(label=str(position), role="launch", values=values, flags=launch.flags)
    elif measurement.samples is not None:
        for position, seconds in enumerate(measurement.samples.rounds_s, start=1):
            yield PlotPoint(label=str(position), role="round", values={STEP_TIME: seconds})


def _facts(measurement: Measurement) -> Iterator[str]:
    yield _median(measurement)
    if measurement.samples is not None:
        yield from _timing(measurement.samples)
    for flag in measurement.flags:
        yield f"{flag}: {MEANINGS[flag]}" if flag in MEANINGS else flag
    yield from filter(None, [measurement.correctness.get("changed_work")])


def _median(measurement: Measurement) -> str:
    """The median with its confidence interval."""
    metrics = measurement.metrics
    median = metrics.get(STEP_TIME)
    if median is None:
        return "no step was timed"
    text = f"{STEP_TIME}: median {number(median.value, 's')}"
    low, high = map(metrics.get, confidence_bounds_of(STEP_TIME))
    if low is None or high is None:
        return f"{text}; too few independent rounds for an interval"
    return (
        f"{text}, {measurement.confidence:.0%} interval {number(low.value, 's')} to "
        f"{number(high.value, 's')}: of this process only; other processes vary more"
    )


def _timing(samples: Samples) -> Iterator[str]:
    timing = samples.timing
    yield (
        f"{counted(samples.calls, 'call')} in {counted(len(samples.block_s), 'block')}, timed by "
        f"{samples.timer}: {counted(samples.rounds, 'round')} of "
        f"{counted(timing.durations_per_round, 'duration')} of "
        f"{counted(timing.calls_per_duration, 'call')}"
    )
    first_call = samples.first_step_s
    before = "" if first_call is None else f"first call {number(first_call, 's')}, then "
    warmup = number(sum(samples.warmup_s), "s")
    yield f"warm-up: {before}{counted(samples.warmup_calls, 'call')} in {warmup}"


def _advice(measurement: Measurement) -> Iterator[Recommendation]:
    flags = doubtful_flags(measurement.flags)
    for flag in flags:
        yield Recommendation(
            text=f"{flag}: {explanation(flag, measurement.flags, measurement.settings)}"
        )
    if not flags:
        yield Recommendation(
            text="for a narrower interval, or a longer measurement: --measure.profile=full"
        )
    if len(measurement.per_launch) < 2:
        yield Recommendation(text="to see the variation between processes: --launches=3")
    yield Recommendation(
        text="to see whether it changed: --baseline=last, a baseline's name, or gpubench ab"
    )
