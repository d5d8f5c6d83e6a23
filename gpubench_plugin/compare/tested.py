"""One look at many series by t tests.

Imported where something is tested, since numpy and scipy come with it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from gpubench_plugin.compare.moderation import estimate_prior, membership, posterior_spread
from gpubench_plugin.compare.plain import better_bar, fraction, log_ratio, verdict, worse_bar
from gpubench_plugin.compare.series import Series, effect_text, interval_text, variation_text
from gpubench_plugin.compare.statistics import (
    Decisions,
    Estimates,
    Floats,
    OwnPairs,
    Q,
    SignedRanks,
    Spread,
    detectable_effect,
    judge_all_series,
    paired_estimates,
    rejection_thresholds,
    spread_about_mean,
)
from gpubench_plugin.compare.step_time import Subject, subject_of
from gpubench_plugin.records import Method, Verdict, VerdictKind


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Numbers of one series that a test needs.

    `estimates` are of this series alone; `spread` is the standard deviation of the effects that
    they come from, `noise` that of the log value of one launch; by `floor` instead of `spread`,
    where that is more, an effect is called; `base` and `head` are geometric means, so that the
    effect is exactly theirs; `launches` counts pairs or earlier runs.
    """

    series: Series
    estimates: Estimates
    spread: float
    floor: float = 0.0
    noise: float
    base: float
    head: float
    launches: int


@dataclass(frozen=True, kw_only=True)
class TestResult:
    """Test result of one series, as fractions.

    `level` is the p value at which it would have been called beside the others; `is_unchanged` says
    that it would be unchanged if there were launches enough to say so.
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
        """Effect and interval, ``4.1 % slower, 99 % interval 3.2 to 5.0 %``, or the variation.

        Where launches are too loud for that, how loud.
        """
        series = self.sample.series
        text = f"{effect_text(series, self.effect)}, {interval_text(series, self.interval)}"
        return variation_text(series, self.interval) or text

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
    series: Sequence[Series], pairs: Sequence[int], decided: Sequence[Series] = ()
) -> list[Sample]:
    """Samples of the first `pairs` pairs of each series, five or more, all positive.

    What series of one kind tell of their noise is shared, also by those of them that were `decided`
    by an earlier look.
    """
    effects = [_effects(item, number) for item, number in zip(series, pairs, strict=True)]
    spreads = [spread_about_mean(item) for item in effects]
    decided_spreads = [
        (_noise_kind(item), spread_about_mean(_effects(item, len(item.head)))) for item in decided
    ]
    suites: dict[str, list[Spread]] = {}
    for kind, spread in (*zip(map(_noise_kind, series), spreads, strict=True), *decided_spreads):
        suites.setdefault(kind, []).append(spread)
    of_kind = {kind: estimate_prior(_pooled(suite)) for kind, suite in suites.items()}
    priors = [of_kind[_noise_kind(item)] for item in series]
    members: dict[Subject, Floats] = {}
    for item, spread, prior in zip(series, spreads, priors, strict=True):
        own_membership = membership(spread, prior)
        members[subject_of(item)] = np.fmin(
            own_membership, members.get(subject_of(item), own_membership)
        )
    return [
        _paired_sample(
            item, values, posterior_spread(spread, prior, len(values), members[subject_of(item)])
        )
        for item, values, spread, prior in zip(series, effects, spreads, priors, strict=True)
    ]


def _noise_kind(series: Series) -> str:
    return series.part or series.metric


def _effects(series: Series, pairs: int) -> Floats:
    value_pairs = zip(series.base[:pairs], series.head[:pairs], strict=True)
    return np.array([log_ratio(base, head, series.better) for base, head in value_pairs])


def _pooled(spreads: Sequence[Spread]) -> Spread:
    return Spread(
        deviation=np.array([float(spread.deviation) for spread in spreads]),
        dof=np.array([float(spread.dof) for spread in spreads]),
    )


def _paired_sample(series: Series, effects: Floats, spread: Spread) -> Sample:
    deviation, dof, floor = (
        np.asarray(array).reshape(()) for array in (spread.deviation, spread.dof, spread.floor)
    )
    return Sample(
        series=series,
        estimates=paired_estimates(effects, Spread(deviation=deviation, dof=dof, floor=floor)),
        spread=float(deviation),
        floor=float(floor),
        noise=float(deviation) / math.sqrt(2),  # a difference has the noise of two launches
        base=_geometric_mean(series.base[: len(effects)]),
        head=_geometric_mean(series.head[: len(effects)]),
        launches=len(effects),
    )


def run_tests(
    samples: Sequence[Sample], m: int, *, q: float = Q, unchanged_from: int = 0
) -> list[TestResult]:
    """Test all `samples` at one look, in order; `m` and `q` as :func:`statistics.find`.

    Nothing but a loose series is unchanged that has fewer launches than `unchanged_from`.
    """
    estimates = _stacked([sample.estimates for sample in samples])
    series = [sample.series for sample in samples]
    regression_thresholds = np.array([worse_bar(item.limit, item.better) for item in series])
    improvement_thresholds = np.array([better_bar(item.limit, item.better) for item in series])
    is_lenient = np.array([item.is_lenient for item in series])
    findings = judge_all_series(
        estimates, regression_thresholds, improvement_thresholds, m=m, q=q, loose=is_lenient
    )
    levels = rejection_thresholds(findings.rejected, m, q)
    detectable = detectable_effect(estimates, regression_thresholds, levels)
    return [
        TestResult(
            sample=sample,
            kind=_kind(
                findings,
                number,
                unchanged=sample.series.is_lenient or sample.launches >= unchanged_from,
            ),
            effect=fraction(float(estimates.mean[number]), sample.series.better),
            interval=(
                fraction(float(findings.low[number]), sample.series.better),
                fraction(float(findings.high[number]), sample.series.better),
            ),
            detectable=fraction(float(detectable[number]), sample.series.better),
            level=float(levels[number]),
            is_unchanged=bool(findings.unchanged[number]),
        )
        for number, sample in enumerate(samples)
    ]


def _stacked(estimates: Sequence[Estimates]) -> Estimates:
    """Stack estimates of single series into arrays."""
    owns = [estimate.own_pairs for estimate in estimates if estimate.own_pairs is not None]
    ranks = [estimate.ranks for estimate in estimates if estimate.ranks is not None]
    return Estimates(
        mean=_column(estimates, "mean"),
        error=_column(estimates, "error"),
        dof=_column(estimates, "dof"),
        floor=_column(estimates, "floor"),
        own_pairs=OwnPairs(**{part.name: _column(owns, part.name) for part in fields(OwnPairs)})
        if owns
        else None,
        ranks=SignedRanks(**{part.name: _column(ranks, part.name) for part in fields(SignedRanks)})
        if ranks
        else None,
    )


def _column(rows: Sequence[Estimates | OwnPairs | SignedRanks], name: str) -> Floats:
    return np.array([float(getattr(row, name)) for row in rows])


def _kind(findings: Decisions, number: int, *, unchanged: bool) -> VerdictKind:
    if findings.regressed[number]:
        return "regressed"
    if findings.improved[number]:
        return "improved"
    return "unchanged" if unchanged and findings.unchanged[number] else "inconclusive"


def _geometric_mean(values: Sequence[float]) -> float:
    return math.exp(math.fsum(map(math.log, values)) / len(values))
