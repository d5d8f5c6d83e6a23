"""One look at many series by t tests.

Imported only where something is tested, since it imports numpy and scipy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np

from gpubench_plugin.compare.empirical_bayes import (
    Prior,
    estimate_prior,
    membership,
    posterior_spread,
)
from gpubench_plugin.compare.launch_values import (
    LaunchValues,
    effect_text,
    interval_text,
    variation_text,
)
from gpubench_plugin.compare.statistics import (
    Decisions,
    Estimates,
    Floats,
    OwnPairs,
    Q,
    Spread,
    detectable_effect,
    judge_all_series,
    paired_estimates,
    rejection_thresholds,
    spread_about_mean,
)
from gpubench_plugin.compare.step_time import Subject, subject_of
from gpubench_plugin.compare.threshold import better_bar, fraction, log_ratio, verdict, worse_bar
from gpubench_plugin.core.verdicts import Method, Verdict, VerdictKind

_Rows = TypeVar("_Rows", Estimates, OwnPairs)


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Numbers of one series that a test needs.

    `spread` is the standard deviation of the effects, `noise` that of the log value of one launch.
    An effect is called by `floor` where that exceeds `spread`. `base` and `head` are geometric
    means, whose ratio is exactly the effect; `launches` counts pairs or earlier runs.
    """

    series: LaunchValues
    estimates: Estimates
    spread: float
    floor: float = 0.0
    noise: float
    base: float
    head: float
    launches: int


@dataclass(frozen=True, kw_only=True)
class TTestResult:
    """Test result of one series, as fractions.

    `level` is the p value at which it would have been called beside the others; `is_unchanged`
    ignores how many pairs "unchanged" requires.
    """

    sample: Sample
    kind: VerdictKind
    effect: float
    interval: tuple[float, float]
    detectable: float
    level: float
    is_unchanged: bool

    @property
    def effect_text(self) -> str:
        """Effect and interval, ``4.1% slower, 99% interval 3.2% to 5.0%``, or the variation."""
        series = self.sample.series
        text = f"{effect_text(series, self.effect)}, {interval_text(series, self.interval)}"
        return variation_text(series, self.interval, "values") or text

    def noise_text(self, noun: str) -> str:
        """Why nothing can be said, if values of the plural `noun` vary too much; else empty."""
        variation = variation_text(self.sample.series, self.interval, noun)
        return f"too noisy to judge: {variation}; quiet the machine" if variation else ""

    def verdict(self, method: Method, reason: str, *, pairs_needed: int | None = None) -> Verdict:
        """Build the verdict with its `reason`."""
        sample = self.sample
        return verdict(
            sample.series,
            self.kind,
            method,
            reason,
            base=sample.base,
            head=sample.head,
            effect=self.effect,
            launches=sample.launches,
            interval=self.interval,
            smallest_visible_effect=self.detectable,
            pairs_needed=pairs_needed,
        )


def paired_samples(
    series: Sequence[LaunchValues], pairs: Sequence[int], decided: Sequence[LaunchValues] = ()
) -> list[Sample]:
    """Samples of the first `pairs` pairs of each series, five or more, all positive.

    Series of one kind share their noise, also with those `decided` by an earlier look.
    """
    effects = [_effects(item, number) for item, number in zip(series, pairs, strict=True)]
    effects += [_effects(item, len(item.head)) for item in decided]
    spreads = [spread_about_mean(values) for values in effects]
    suites: dict[str, list[Spread]] = {}
    for item, spread in zip((*series, *decided), spreads, strict=True):
        suites.setdefault(_noise_kind(item), []).append(spread)
    priors = {kind: estimate_prior(_pooled(suite)) for kind, suite in suites.items()}
    members: dict[Subject, Floats] = {}
    for item, spread in zip(series, spreads, strict=False):
        degree, subject = membership(spread, priors[_noise_kind(item)]), subject_of(item)
        members[subject] = np.fmin(degree, members.get(subject, degree))
    return [
        _paired_sample(item, values, spread, priors[_noise_kind(item)], members[subject_of(item)])
        for item, values, spread in zip(series, effects, spreads, strict=False)
    ]


def _noise_kind(series: LaunchValues) -> str:
    return series.part or series.metric


def _effects(series: LaunchValues, pairs: int) -> Floats:
    value_pairs = zip(series.base[:pairs], series.head[:pairs], strict=True)
    return np.array([log_ratio(base, head, series.better) for base, head in value_pairs])


def _pooled(spreads: Sequence[Spread]) -> Spread:
    return Spread(
        deviation=np.array([float(spread.deviation) for spread in spreads]),
        dof=np.array([float(spread.dof) for spread in spreads]),
    )


def _paired_sample(
    series: LaunchValues, effects: Floats, own: Spread, prior: Prior, members: Floats
) -> Sample:
    pairs = len(effects)
    posterior = posterior_spread(own, prior, pairs, members)
    deviation, dof, floor = (
        np.asarray(array).reshape(())
        for array in (posterior.deviation, posterior.dof, posterior.floor)
    )
    return Sample(
        series=series,
        estimates=paired_estimates(effects, Spread(deviation=deviation, dof=dof, floor=floor)),
        spread=float(deviation),
        floor=float(floor),
        noise=float(deviation) / math.sqrt(2),  # a difference has the noise of two launches
        base=_geometric_mean(series.base[:pairs]),
        head=_geometric_mean(series.head[:pairs]),
        launches=pairs,
    )


def run_tests(
    samples: Sequence[Sample], m: int, *, q: float = Q, unchanged_from: int = 0
) -> list[TTestResult]:
    """Test all `samples` at one look, in order; `m` and `q` as :func:`.judge_all_series`.

    Only lenient series are unchanged by fewer launches than `unchanged_from`.
    """
    estimates = _stacked([sample.estimates for sample in samples])
    series = [sample.series for sample in samples]
    worse = np.array([worse_bar(item.limit, item.better) for item in series])
    better = np.array([better_bar(item.limit, item.better) for item in series])
    is_lenient = np.array([item.is_lenient for item in series])
    decisions = judge_all_series(estimates, worse, better, m=m, q=q, loose=is_lenient)
    levels = rejection_thresholds(decisions.rejected, m, q)
    detectable = detectable_effect(estimates, worse, levels)

    def result(number: int, sample: Sample) -> TTestResult:
        effect, low, high, smallest = (
            fraction(float(log_effects[number]), sample.series.better)
            for log_effects in (estimates.mean, decisions.low, decisions.high, detectable)
        )
        has_enough = sample.series.is_lenient or sample.launches >= unchanged_from
        return TTestResult(
            sample=sample,
            kind=_kind(decisions, number, unchanged=has_enough),
            effect=effect,
            interval=(low, high),
            detectable=smallest,
            level=float(levels[number]),
            is_unchanged=bool(decisions.unchanged[number]),
        )

    return [result(number, sample) for number, sample in enumerate(samples)]


def _stacked(rows: Sequence[_Rows]) -> _Rows:
    """Stack records of single series, and the records in them, into arrays."""

    def stacked(name: str) -> Any:
        values = [getattr(row, name) for row in rows]
        if is_dataclass(values[0]):
            return _stacked(values)
        return None if values[0] is None else np.array([float(value) for value in values])

    return replace(rows[0], **{field.name: stacked(field.name) for field in fields(rows[0])})


def _kind(decisions: Decisions, number: int, *, unchanged: bool) -> VerdictKind:
    if decisions.regressed[number]:
        return "regressed"
    if decisions.improved[number]:
        return "improved"
    return "unchanged" if unchanged and decisions.unchanged[number] else "inconclusive"


def _geometric_mean(values: Sequence[float]) -> float:
    return math.exp(math.fsum(map(math.log, values)) / len(values))
