"""One look at many series with t tests: numbers in, what was found of each series out.

Imported where something is tested, since numpy and scipy come with it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from gpubench_plugin.compare.moderation import membership, moderated, prior_of
from gpubench_plugin.compare.plain import better_bar, fraction, log_ratio, verdict, worse_bar
from gpubench_plugin.compare.series import Series, change, too_loud, within
from gpubench_plugin.compare.statistics import (
    Estimates,
    Findings,
    Floats,
    Own,
    Q,
    Ranks,
    Spread,
    find,
    level,
    paired,
    spread_about_mean,
    visible,
)
from gpubench_plugin.compare.step_time import Subject, subject_of
from gpubench_plugin.records import Method, Verdict, VerdictKind


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The numbers of one series that a look needs.

    `estimates` are of this series alone; `spread` is the standard deviation of the effects that
    they come from, `noise` that of the log value of one launch; by `least` instead of `spread`,
    where that is more, an effect is called; `base` and `head` are geometric means, so that the
    effect is exactly theirs; `launches` counts pairs or earlier runs.
    """

    series: Series
    estimates: Estimates
    spread: float
    least: float = 0.0
    noise: float
    base: float
    head: float
    launches: int


@dataclass(frozen=True, kw_only=True)
class Tested:
    """What one look found of one series, as fractions.

    `level` is the p value at which it would have been called beside the others; `cleared` says that
    it would be unchanged if there were launches enough to say so.
    """

    sample: Sample
    kind: VerdictKind
    effect: float
    interval: tuple[float, float]
    visible: float
    level: float
    cleared: bool

    @property
    def finding(self) -> str:
        """Effect and interval in words, ``4.1 % slower, 99 % interval 3.2 to 5.0 %``, or neither.

        Where launches are too loud for that, how loud.
        """
        series = self.sample.series
        words = f"{change(series, self.effect)}, {within(series, self.interval)}"
        return too_loud(series, self.interval) or words

    def verdict(self, method: Method, reason: str, *, pairs_needed: int | None = None) -> Verdict:
        """The verdict with its `reason`."""
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
            smallest_visible_effect=self.visible,
            pairs_needed=pairs_needed,
        )


def paired_samples(
    series: Sequence[Series], pairs: Sequence[int], decided: Sequence[Series] = ()
) -> list[Sample]:
    """The sample of the first `pairs` pairs of each series, five or more, of positive values.

    What series of one kind tell of their noise is shared, also by those of them that were `decided`
    by an earlier look.
    """
    effects = [_effects(one, number) for one, number in zip(series, pairs, strict=True)]
    spreads = [spread_about_mean(one) for one in effects]
    known = [(_noise_kind(one), spread_about_mean(_effects(one, len(one.head)))) for one in decided]
    suites: dict[str, list[Spread]] = {}
    for kind, spread in (*zip(map(_noise_kind, series), spreads, strict=True), *known):
        suites.setdefault(kind, []).append(spread)
    of_kind = {kind: prior_of(_together(suite)) for kind, suite in suites.items()}
    priors = [of_kind[_noise_kind(one)] for one in series]
    members: dict[Subject, Floats] = {}
    for one, spread, prior in zip(series, spreads, priors, strict=True):
        own = membership(spread, prior)
        members[subject_of(one)] = np.fmin(own, members.get(subject_of(one), own))
    return [
        _paired_sample(one, values, moderated(spread, prior, len(values), members[subject_of(one)]))
        for one, values, spread, prior in zip(series, effects, spreads, priors, strict=True)
    ]


def _noise_kind(series: Series) -> str:
    return series.part or series.metric


def _effects(series: Series, pairs: int) -> Floats:
    beside = zip(series.base[:pairs], series.head[:pairs], strict=True)
    return np.array([log_ratio(base, head, series.better) for base, head in beside])


def _together(spreads: Sequence[Spread]) -> Spread:
    return Spread(
        deviation=np.array([float(one.deviation) for one in spreads]),
        freedom=np.array([float(one.freedom) for one in spreads]),
    )


def _paired_sample(series: Series, effects: Floats, spread: Spread) -> Sample:
    deviation, freedom, least = (
        np.asarray(one).reshape(()) for one in (spread.deviation, spread.freedom, spread.least)
    )
    return Sample(
        series=series,
        estimates=paired(effects, Spread(deviation=deviation, freedom=freedom, least=least)),
        spread=float(deviation),
        least=float(least),
        noise=float(deviation) / math.sqrt(2),  # a difference has the noise of two launches
        base=_geometric_mean(series.base[: len(effects)]),
        head=_geometric_mean(series.head[: len(effects)]),
        launches=len(effects),
    )


def look(
    samples: Sequence[Sample], m: int, *, q: float = Q, unchanged_from: int = 0
) -> list[Tested]:
    """What one look at all `samples` finds, in their order; `m` and `q` as :func:`statistics.find`.

    Nothing but a loose series is unchanged that has fewer launches than `unchanged_from`.
    """
    estimates = _stacked([sample.estimates for sample in samples])
    series = [sample.series for sample in samples]
    worse = np.array([worse_bar(one.limit, one.better) for one in series])
    better = np.array([better_bar(one.limit, one.better) for one in series])
    loose = np.array([one.loose for one in series])
    findings = find(estimates, worse, better, m=m, q=q, loose=loose)
    levels = level(findings.rejected, m, q)
    least = visible(estimates, worse, levels)
    return [
        Tested(
            sample=sample,
            kind=_kind(
                findings,
                number,
                unchanged=sample.series.loose or sample.launches >= unchanged_from,
            ),
            effect=fraction(float(estimates.mean[number]), sample.series.better),
            interval=(
                fraction(float(findings.low[number]), sample.series.better),
                fraction(float(findings.high[number]), sample.series.better),
            ),
            visible=fraction(float(least[number]), sample.series.better),
            level=float(levels[number]),
            cleared=bool(findings.unchanged[number]),
        )
        for number, sample in enumerate(samples)
    ]


def _stacked(estimates: Sequence[Estimates]) -> Estimates:
    """One for each series as one for all."""
    owns = [one.own for one in estimates if one.own is not None]
    ranks = [one.ranks for one in estimates if one.ranks is not None]
    return Estimates(
        mean=_column(estimates, "mean"),
        error=_column(estimates, "error"),
        freedom=_column(estimates, "freedom"),
        least=_column(estimates, "least"),
        own=Own(**{part.name: _column(owns, part.name) for part in fields(Own)}) if owns else None,
        ranks=Ranks(**{part.name: _column(ranks, part.name) for part in fields(Ranks)})
        if ranks
        else None,
    )


def _column(rows: Sequence[Estimates | Own | Ranks], name: str) -> Floats:
    return np.array([float(getattr(row, name)) for row in rows])


def _kind(findings: Findings, number: int, *, unchanged: bool) -> VerdictKind:
    if findings.regressed[number]:
        return "regressed"
    if findings.improved[number]:
        return "improved"
    return "unchanged" if unchanged and findings.unchanged[number] else "inconclusive"


def _geometric_mean(values: Sequence[float]) -> float:
    return math.exp(math.fsum(map(math.log, values)) / len(values))
