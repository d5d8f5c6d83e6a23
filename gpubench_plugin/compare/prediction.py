"""The prediction t of the history gate, which asks whether the head is one of the earlier runs.

Values are log values, positive where worse, along the last axis; axes before it are suites, as in
:mod:`.statistics`. Single values far out, of pinned runs as of later ones, move neither the level
nor the noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from scipy import stats

from gpubench_plugin.compare.series import Samples, Series
from gpubench_plugin.compare.statistics import Bools, Estimates, Floats
from gpubench_plugin.compare.tested import Sample

_OUTLYING: Final = 0.01
"""The chance that the test for outliers takes one of ten to twenty normal values for one."""

_WIDER: Final = 1.25
"""What the noise without its outliers is multiplied by; each of them costs two degrees of freedom.

Simulated for 10 to 20 normal values, of which one of a hundred samples loses some: the prediction t
then exceeds its quantile of 0.017 % at most 1.4 times as often as it may, else three times
(`tests/unit/compare/test_prediction.py`).
"""


@dataclass(frozen=True, kw_only=True)
class Level:
    """The mean of the earlier runs that are the level, and how many of them it is made of."""

    mean: Floats
    count: Floats


@dataclass(frozen=True, kw_only=True)
class Noise:
    """The standard deviation from run to run, with the degrees of freedom it is known by.

    `outliers`: whether earlier runs were left out of it.
    """

    deviation: Floats
    freedom: Floats
    outliers: Bools


def without_outliers(values: Floats, most: int) -> Bools:
    """Which of the `values` are none of at most so many outliers.

    The generalised extreme Studentised deviate test (B. Rosner, Technometrics 25, 1983), which
    several outliers cannot hide from. Where all others are equal nothing else tells of noise, and
    none is an outlier.
    """
    count = values.shape[-1]
    inside = np.ones(values.shape, dtype=np.bool_)
    removed, outliers = [], np.zeros(values.shape[:-1], dtype=np.int64)
    for number in range(1, most + 1):
        left = count - number + 1
        mean = np.where(inside, values, 0.0).sum(axis=-1, keepdims=True) / left
        distance = np.where(inside, np.abs(values - mean), 0.0)
        deviation = np.sqrt((distance**2).sum(axis=-1) / (left - 1))
        far = distance.argmax(axis=-1)[..., None]
        np.put_along_axis(inside, far, False, axis=-1)
        rest = _deviation(values, inside)
        extreme = np.take_along_axis(distance, far, axis=-1)[..., 0] > _bar(left) * deviation
        outliers = np.where(extreme & (rest > 0), number, outliers)
        removed.append(far)
    fit = np.ones(values.shape, dtype=np.bool_)
    for number, far in enumerate(removed):
        np.put_along_axis(fit, far, (outliers <= number)[..., None], axis=-1)
    return fit


def _bar(left: int) -> float:
    """How many standard deviations the furthest of so many values may be from their mean."""
    t = float(stats.t.isf(_OUTLYING / (2 * left), left - 2))
    return (left - 1) * t / math.sqrt((left - 2 + t * t) * left)


def _deviation(values: Floats, fit: Bools) -> Floats:
    """The standard deviation of those of the `values` that are `fit`."""
    count = fit.sum(axis=-1)
    mean = np.where(fit, values, 0.0).sum(axis=-1) / count
    squares = np.where(fit, values - mean[..., None], 0.0) ** 2
    deviation: Floats = np.sqrt(squares.sum(axis=-1) / (count - 1))
    return deviation


def level_of(values: Floats) -> Level:
    """The mean of the `values`, of ten or more without one outlier in ten.

    More of them are a second level, which is noise.
    """
    fit = without_outliers(values, values.shape[-1] // 10)
    count = fit.sum(axis=-1).astype(np.float64)
    return Level(mean=np.where(fit, values, 0.0).sum(axis=-1) / count, count=count)


def noise_about_level(values: Floats) -> Noise:
    """The standard deviation of ten or more `values` that are of one level.

    Without outliers, as :func:`level_of`.
    """
    fit = without_outliers(values, values.shape[-1] // 10)
    outliers = values.shape[-1] - fit.sum(axis=-1)
    return Noise(
        deviation=_deviation(values, fit) * np.where(outliers > 0, _WIDER, 1.0),
        freedom=values.shape[-1] - 1.0 - 2.0 * outliers,
        outliers=outliers > 0,
    )


def noise_of_steps(values: Floats) -> Noise:
    """The standard deviation from run to run of ten or more `values`, oldest first.

    From the differences of neighbours (J. von Neumann, 1941), so that a slow creep does not count,
    and without the largest rise, which may be the very step that is to be found. Nor do outliers
    among them count, two for each ten runs: a single slow run is a rise and a fall. What the rise
    takes from the sum, and the degrees of freedom of what is left, are simulated for 10 to 20
    normal values (`tests/unit/compare/test_prediction.py`).
    """
    steps = np.diff(values, axis=-1)
    fit = without_outliers(steps, 2 * (values.shape[-1] // 10))
    rise = np.maximum(np.where(fit, steps, -np.inf).max(axis=-1), 0.0)
    squares = np.where(fit, steps, 0.0) ** 2
    left = np.maximum(squares.sum(axis=-1) - rise**2, 0.0) / 2
    count = fit.sum(axis=-1)
    return Noise(
        deviation=np.sqrt(left / (count - 3.0)),
        freedom=0.6 * count,
        outliers=count < steps.shape[-1],
    )


def noise_with(noise: Noise, level: Level, head: Floats) -> Noise:
    """The `noise`, or half of how far apart three launches of the head are, if that is more.

    Two that agree outvote a third: what counts is how far their median is from the nearer of the
    others. Where an earlier run was out as well, such launches are known here, and all three must
    agree: what counts is how far it is from the next one towards the `level`. The half is
    simulated: with 5 % of launches 5 to 30 % slower, fewer than 7 % of suites of twenty have an
    alarm that is confirmed (docs/evidence/history_gate.md).
    """
    if head.shape[-1] != 3:
        return noise
    least, middle, most = np.moveaxis(np.sort(head, axis=-1), -1, 0)
    below, above = middle - least, most - middle
    towards = np.where(middle > level.mean, below, above)
    apart = np.where(noise.outliers, towards, np.minimum(below, above))
    return replace(noise, deviation=np.maximum(noise.deviation, apart / 2))


def variance_of_median(count: int) -> float:
    """The variance of the median of so many normal values, in that of one of them.

    π/(2n + π − 2) is exact for one value and for very many, and at most 2 % too small between
    (3: 0.440 for 0.449); for even numbers it is too large.
    """
    return math.pi / (2 * count + math.pi - 2)


def variance_within(launches: Sequence[Floats]) -> float:
    """The variance between the launches of one run, each an array of two or more; 0 of none.

    The median over the runs, so that a single launch far out does not count; that of the
    distribution of a variance is below its mean.
    """
    variances = [
        one.var(ddof=1) * (one.size - 1) / stats.chi2.median(one.size - 1) for one in launches
    ]
    return float(np.median(variances)) if variances else 0.0


def predicted(
    level: Level, head: Floats, noise: Noise, *, excess: Floats | float = 0.0
) -> Estimates:
    """Estimates of the prediction t: how far the median of `head` is from being of the `level`.

    Args:
        level: the mean of k earlier runs.
        head: one run, or n of them.
        noise: s, from run to run.
        excess: what the variance of one run of the head is larger by, since it has fewer launches.

    Returns:
        The difference, whose error is √((s² + excess)·v(n) + s²/k), v of
        :func:`variance_of_median`.
    """
    share = variance_of_median(head.shape[-1])
    variance = noise.deviation**2
    return Estimates(
        mean=np.median(head, axis=-1) - level.mean,
        error=np.sqrt((variance + excess) * share + variance / level.count),
        freedom=noise.freedom,
    )


def prediction_sample(series: Series, samples: Samples) -> Sample:
    """The sample of the head against earlier ones, all positive.

    The noise is what they tell themselves, or what later runs tell, whichever is more: runs of one
    sitting know nothing of the noise between days, and later ones may be few.
    """
    level, steps = _logs(series, samples.level), _logs(series, samples.steps)
    noises = [noise_about_level(level)] if samples.level_tells else []
    noises += [noise_of_steps(steps)] if samples.steps_tell else []
    head, pinned = _logs(series, series.head), level_of(level)
    noise = noise_with(max(noises, key=lambda one: float(one.deviation)), pinned, head)
    return _sample(series, samples, pinned, head, noise, excess_of(series, samples))


def excess_of(series: Series, samples: Samples) -> float:
    """What the variance of a run of the head is larger by than that of an earlier one.

    The head may have fewer launches: their noise does not average out as it did before.
    """
    several = [_logs(series, one) for one in samples.launches if len(one) > 1]
    earlier = [variance_of_median(max(1, len(one))) for one in samples.launches]
    head = variance_of_median(series.fewest_launches)
    return max(0.0, head - sum(earlier) / len(earlier)) * variance_within(several)


def bound_sample(series: Series, samples: Samples) -> Sample | None:
    """The sample of the head against too few earlier runs, by the noise between their launches.

    None where no run has several launches. Of the noise between hours and days it knows nothing.
    """
    runs = [*samples.launches, *series.head_launches]
    logs = [_logs(series, one) for one in runs if len(one) > 1 and min(one) > 0]
    if not logs or not samples.level:
        return None
    freedom = sum(one.size - 1 for one in logs)
    variance = sum(float(one.var(ddof=1)) * (one.size - 1) for one in logs) / freedom
    level = _logs(series, samples.level)
    earlier = [variance_of_median(max(1, len(one))) for one in samples.launches[: level.size]]
    own = sum(earlier) / len(earlier) * variance
    return _sample(
        series,
        samples,
        level_of(level),
        _logs(series, series.head),
        Noise(
            deviation=np.asarray(math.sqrt(own)),
            freedom=np.asarray(float(freedom)),
            outliers=np.asarray(False),
        ),
        variance_of_median(series.fewest_launches) * variance - own,
    )


def _sample(
    series: Series,
    samples: Samples,
    level: Level,
    head: Floats,
    noise: Noise,
    excess: float,
) -> Sample:
    sign = _sign(series)
    return Sample(
        series=series,
        estimates=predicted(level, head, noise, excess=excess),
        spread=float(noise.deviation),
        noise=math.sqrt(float(noise.deviation) ** 2 + max(0.0, excess)),
        base=math.exp(sign * float(level.mean)),
        head=math.exp(sign * float(np.median(head))),
        launches=samples.count,
    )


def _logs(series: Series, values: Sequence[float]) -> Floats:
    return _sign(series) * np.log(np.asarray(values, dtype=np.float64))


def _sign(series: Series) -> float:
    return -1.0 if series.better == "higher" else 1.0
