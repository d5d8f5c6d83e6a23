"""Judgement of one run against a history of earlier runs, by the prediction t test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Final

from gpubench_plugin.compare.launch_values import FEWEST, LaunchValues
from gpubench_plugin.compare.threshold import (
    effect_of,
    exact_verdict,
    family_size,
    has_no_variance,
    inconclusive_verdict,
    trivial_verdict,
    unusable,
)
from gpubench_plugin.core.format import change_percentage, counted, quantity
from gpubench_plugin.core.verdicts import Verdict

if TYPE_CHECKING:
    from gpubench_plugin.compare.t_tests import TTestResult

ADVICE: Final = "`gpubench ab` gives a definite answer"


def judge_history(series: Sequence[LaunchValues], *, m: int | None = None) -> list[Verdict]:
    """One verdict per series, in order, on whether the head is drawn from the earlier runs.

    Args:
        series: `base` holds one value per earlier run, `head` that of the judged run, then of its
            relaunches: the median counts, and a regressed one must be beyond the limit in each.
        m: size of the whole suite, see :func:`judge_pairs`.
    """
    trivial = [_trivial_verdict(item) for item in series]
    tested = [item for item, verdict in zip(series, trivial, strict=True) if verdict is None]
    results: list[TTestResult] = []
    if tested:
        from gpubench_plugin.compare.prediction import prediction_sample
        from gpubench_plugin.compare.t_tests import run_tests

        results = run_tests([*map(prediction_sample, tested)], max(m or 0, family_size(series)))
    verdicts = map(_verdict_on_launches, results)
    return [verdict or next(verdicts) for verdict in trivial]


def _trivial_verdict(series: LaunchValues) -> Verdict | None:
    if verdict := trivial_verdict(series):
        return verdict
    samples = series.samples
    if len(series.base) >= FEWEST and (has_no_variance(series) or not samples.level):
        return exact_verdict(series, launches=len(series.base))
    if samples.missing:
        return _too_few(series)
    problems = (unusable(series, median(samples.level), head) for head in series.head)
    return next(filter(None, problems), None)


def _too_few(series: LaunchValues) -> Verdict:
    samples = series.samples
    unused = len(series.base) - samples.count
    note = f" ({unused} more without a positive value)" if unused else ""
    requirement = f"at least {FEWEST} are needed"
    if samples.later:
        requirement = f"{FEWEST} pinned runs are needed, or {FEWEST - 1} later ones"
    cause = f"{samples.description}{note}: {requirement}; {ADVICE}"
    return inconclusive_verdict(
        series, "history", cause, launches=samples.count, runs_needed=samples.missing
    )


def _verdict_on_launches(tested: TTestResult) -> Verdict:
    """The verdict on the median, regressed only where no relaunch by itself is within the limit.

    A benchmark that is slow in some of its launches is within it in others.
    """
    verdict, series = _verdict_of(tested), tested.sample.series
    if not (relaunched := series.head[1:]):
        return verdict
    values = ", ".join(quantity(value, series.unit) for value in relaunched)
    launches = f"{counted(len(relaunched), 'more launch')} ({values})"
    effects = (effect_of(tested.sample.base, value, series.better) for value in relaunched)
    is_regressed, is_slow_in_all = verdict.kind == "regressed", min(effects) >= series.limit.bound
    is_confirmed = is_regressed and is_slow_in_all
    kind = "inconclusive" if is_regressed and not is_slow_in_all else verdict.kind
    reason = f"{'' if is_confirmed else 'not '}confirmed by {launches}: {verdict.reason}"
    return replace(verdict, kind=kind, reason=reason)


def _verdict_of(tested: TTestResult) -> Verdict:
    series, samples = tested.sample.series, tested.sample.series.samples
    details = f"{tested.effect_text}, {samples.description}, limit {series.limit.text}"
    details += _fewer_launches_note(series)
    hint = "" if len(samples.level) >= FEWEST else ", with ten pinned runs also smaller ones"
    power = (
        f"a history detects effects from {change_percentage(tested.detectable)} on{hint}; {ADVICE}"
    )
    if tested.kind == "inconclusive":
        if cause := tested.noise_text("runs"):
            return tested.verdict("history", f"{cause}; {ADVICE}")
        noise = change_percentage(tested.sample.noise)
        return tested.verdict("history", f"{details}; noise between runs {noise}: {power}")
    return tested.verdict("history", f"{details}; {power}")


def _fewer_launches_note(series: LaunchValues) -> str:
    """Note that the head has fewer launches than most earlier runs, hence more noise."""
    typical = int(median(max(1, len(launches)) for launches in series.samples.launches))
    if series.fewest_launches >= typical:
        return ""
    launches = counted(series.fewest_launches, "launch")
    return f", {launches} against {typical} in earlier runs, which adds noise"
