"""Judgement of one run against a history of earlier runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Final

from gpubench_plugin.compare.plain import (
    exact_verdict,
    family_size,
    has_no_variance,
    inconclusive_verdict,
    trivial_verdict,
    unusable,
)
from gpubench_plugin.compare.series import FEWEST, HistorySamples, Series, percent
from gpubench_plugin.environment import counted
from gpubench_plugin.records import Verdict

if TYPE_CHECKING:
    from gpubench_plugin.compare.tested import TestResult


ADVICE: Final = "`gpubench ab` gives a definite answer"


def judge_history(series: Sequence[Series], *, m: int | None = None) -> list[Verdict]:
    """One verdict per series, in order, by the prediction t statistic against the pinned level.

    It asks whether the head is one of the earlier runs: weak by nature, and the verdicts say so.

    Args:
        series: `base` holds one value per earlier run, `head` one per run that is judged: usually
            one, of which the median counts where it was launched again.
        m: series of the whole suite, see :func:`judge_pairs`.
    """
    decided = {
        number: verdict for number, item in enumerate(series) if (verdict := _trivial_verdict(item))
    }
    tested = [number for number in range(len(series)) if number not in decided]
    if not tested:
        return [decided[number] for number in range(len(series))]
    from gpubench_plugin.compare.prediction import prediction_sample
    from gpubench_plugin.compare.tested import run_tests

    samples = [prediction_sample(series[i], HistorySamples.of(series[i])) for i in tested]
    results = run_tests(samples, max(m or 0, family_size(series)))
    verdicts = decided | dict(zip(tested, map(_verdict_of, results), strict=True))
    return [verdicts[number] for number in range(len(series))]


def _trivial_verdict(series: Series) -> Verdict | None:
    if verdict := trivial_verdict(series):
        return verdict
    samples = HistorySamples.of(series)
    if len(series.base) >= FEWEST and (has_no_variance(series) or not samples.level):
        return exact_verdict(series, launches=len(series.base))
    if not (samples.level_estimates_noise or samples.steps_estimate_noise):
        return _bounded(series, samples) or _too_few(series, samples)
    problems = (unusable(series, median(samples.level), head) for head in series.head)
    return next(filter(None, problems), None)


def _bounded(series: Series, samples: HistorySamples) -> Verdict | None:
    """Verdict from launches within a few runs; None if every run has one launch."""
    if all(len(launches) < 2 for launches in (*series.base_launches, *series.head_launches)):
        return None
    from gpubench_plugin.compare.prediction import bound_sample
    from gpubench_plugin.compare.tested import run_tests

    sample = bound_sample(series, samples) if min(series.head) > 0 else None
    if sample is None or not sample.spread:
        return None
    (tested,) = run_tests([sample], 1)
    cause = f"{tested.effect_text}: a bound from {_noise_source(series, samples)}, not a history"
    cause = f"{cause}, limit {series.limit.text}; {_missing_samples_text(samples)}; {ADVICE}"
    verdict = replace(tested, kind="inconclusive").verdict("history", cause)
    return replace(verdict, runs_needed=samples.missing)


def _noise_source(series: Series, samples: HistorySamples) -> str:
    """Describe whose launches give the noise: ``its own 3 launches``, or earlier runs'."""
    own_count = sum(len(launches) for launches in samples.launches if len(launches) > 1)
    heads = sum(len(launches) for launches in series.head_launches if len(launches) > 1)
    parts = [f"its own {counted(own_count, 'launch')}"] if own_count else []
    parts += [f"the head's {heads}"] if heads else []
    return " and ".join(parts)


def _too_few(series: Series, samples: HistorySamples) -> Verdict:
    unusable_count = len(series.base) - samples.count
    unusable_note = f" ({unusable_count} more without a positive value)" if unusable_count else ""
    cause = f"{_missing_samples_text(samples, unusable_note)}; {ADVICE}"
    return inconclusive_verdict(
        series, "history", cause, launches=samples.count, runs_needed=samples.missing
    )


def _missing_samples_text(samples: HistorySamples, unusable_note: str = "") -> str:
    requirement = f"at least {FEWEST} are needed"
    if samples.later:
        requirement = f"{FEWEST} pinned runs are needed, or {FEWEST - 1} later ones"
    return f"{samples.description}{unusable_note}: {requirement}"


def _verdict_of(tested: TestResult) -> Verdict:
    series, noise = tested.sample.series, percent(tested.sample.noise)
    samples = HistorySamples.of(series)
    details = (
        f"{tested.effect_text}, {samples.description}, limit "
        f"{series.limit.text}{_fewer_launches_note(series, samples)}"
    )
    pin_hint = "" if samples.level_estimates_noise else ", smaller ones with ten pinned runs"
    visible_effect = f"≥ {percent(tested.detectable)}{pin_hint}, {ADVICE}"
    if tested.kind == "inconclusive":
        return tested.verdict(
            "history",
            (
                f"noise between runs {noise}: only effects {visible_effect} would be visible "
                f"({details})"
            ),
        )
    return tested.verdict("history", f"{details}; a history detects {visible_effect}")


def _fewer_launches_note(series: Series, samples: HistorySamples) -> str:
    """Note that the head has fewer launches than most earlier runs, hence more noise."""
    typical_launches = int(median(max(1, len(launches)) for launches in samples.launches))
    if series.fewest_launches >= typical_launches:
        return ""
    head_launches = counted(series.fewest_launches, "launch")
    return f", {head_launches} against {typical_launches} in earlier runs, which adds noise"
