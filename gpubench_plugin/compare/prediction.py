"""Prediction t test of the history gate: whether the head is drawn from the earlier runs.

Values are log values, positive where worse, along the last axis; axes before it are suites, as in
:mod:`.statistics`. Single outliers move neither the level nor the noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy import stats

from gpubench_plugin.compare.launch_values import FEWEST, LaunchValues
from gpubench_plugin.compare.statistics import Bools, Estimates, Floats, Spread
from gpubench_plugin.compare.t_tests import Sample

# Chance that the outlier test rejects one of ten to twenty normal values.
_OUTLYING: Final = 0.01

# Factor of the noise without its outliers; each of them costs two degrees of freedom. Simulated for
# 10 to 20 normal values, of which one of a hundred samples loses some: the prediction t then
# exceeds its 0.017% quantile at most 1.4 times as often as it may, without the factor three times
# (tests/unit/compare/test_prediction.py).
_WIDER: Final = 1.25


@dataclass(frozen=True, kw_only=True)
class Level:
    """Mean of the level's runs and their number."""

    mean: Floats
    count: Floats


def inlier_mask(values: Floats, max_outliers: int) -> Bools:
    """Mask of `values` that are not outliers, removing at most `max_outliers`.

    The generalised extreme Studentised deviate test (B. Rosner, Technometrics 25, 1983), in which
    several outliers cannot mask each other. Where all other values are equal, their noise is
    unknown and none is an outlier.
    """
    remaining = np.ones(values.shape, dtype=np.bool_)
    removed_indices, outliers = [], np.zeros(values.shape[:-1], dtype=np.int64)
    for number in range(1, max_outliers + 1):
        count = values.shape[-1] - number + 1
        mean = np.where(remaining, values, 0.0).sum(axis=-1, keepdims=True) / count
        distance = np.where(remaining, np.abs(values - mean), 0.0)
        deviation = np.sqrt((distance**2).sum(axis=-1) / (count - 1))
        furthest = distance.argmax(axis=-1)[..., None]
        np.put_along_axis(remaining, furthest, False, axis=-1)
        largest = np.take_along_axis(distance, furthest, axis=-1)[..., 0]
        is_outlier = largest > _threshold(count) * deviation
        outliers = np.where(is_outlier & (_deviation(values, remaining) > 0), number, outliers)
        removed_indices.append(furthest)
    mask = np.ones(values.shape, dtype=np.bool_)
    for number, furthest in enumerate(removed_indices):
        np.put_along_axis(mask, furthest, (outliers <= number)[..., None], axis=-1)
    return mask


def _threshold(remaining: int) -> float:
    """Outlier threshold in standard deviations for so many values (generalized ESD)."""
    t = float(stats.t.isf(_OUTLYING / (2 * remaining), remaining - 2))
    return (remaining - 1) * t / math.sqrt((remaining - 2 + t * t) * remaining)


def _deviation(values: Floats, mask: Bools) -> Floats:
    """Standard deviation of the `values` selected by `mask`."""
    count = mask.sum(axis=-1)
    mean = np.where(mask, values, 0.0).sum(axis=-1) / count
    squares = np.where(mask, values - mean[..., None], 0.0) ** 2
    deviation: Floats = np.sqrt(squares.sum(axis=-1) / (count - 1))
    return deviation


def level_of(values: Floats) -> Level:
    """Mean of the `values`; of ten or more, without one outlier in ten.

    More of them are a second level, which counts as noise.
    """
    mask = inlier_mask(values, values.shape[-1] // 10)
    count = mask.sum(axis=-1).astype(np.float64)
    return Level(mean=np.where(mask, values, 0.0).sum(axis=-1) / count, count=count)


def noise_about_level(values: Floats) -> Spread:
    """Standard deviation of ten or more `values` around one level, without outliers."""
    mask = inlier_mask(values, values.shape[-1] // 10)
    outliers = values.shape[-1] - mask.sum(axis=-1)
    return Spread(
        deviation=_deviation(values, mask) * np.where(outliers > 0, _WIDER, 1.0),
        dof=values.shape[-1] - 1.0 - 2.0 * outliers,
    )


def noise_of_steps(values: Floats) -> Spread:
    """Run-to-run standard deviation of ten or more `values`, oldest first, from their steps.

    From the differences of neighbours (J. von Neumann, 1941), so that a slow creep does not count,
    and without the largest rise, which may be the regression to detect. Outliers are left out, two
    for each ten runs: a single slow run is a rise and a fall. The constants 3 and 0.6 are simulated
    for 10 to 20 normal values (`tests/unit/compare/test_prediction.py`).
    """
    steps = np.diff(values, axis=-1)
    mask = inlier_mask(steps, 2 * (values.shape[-1] // 10))
    largest_rise = np.maximum(np.where(mask, steps, -np.inf).max(axis=-1), 0.0)
    squares = np.where(mask, steps, 0.0) ** 2
    remaining_variance = np.maximum(squares.sum(axis=-1) - largest_rise**2, 0.0) / 2
    count = mask.sum(axis=-1)
    return Spread(deviation=np.sqrt(remaining_variance / (count - 3.0)), dof=0.6 * count)


def variance_of_median(count: int) -> float:
    """Variance of the median of so many normal values, relative to a single one's.

    π/(2n + π − 2) is exact for one value and for very many, and at most 2% too small between
    (3: 0.440 for 0.449); for even numbers it is too large.
    """
    return math.pi / (2 * count + math.pi - 2)


def variance_within(launches: Sequence[Floats]) -> float:
    """Variance between launches of the same run, from arrays of two or more; 0 without any.

    The median over the runs, robust to outliers, scaled from a variance's median to its mean.
    """
    variances = [
        values.var(ddof=1) * (values.size - 1) / stats.chi2.median(values.size - 1)
        for values in launches
    ]
    return float(np.median(variances)) if variances else 0.0


def prediction_estimates(
    level: Level, head: Floats, noise: Spread, excess: float = 0.0
) -> Estimates:
    """Prediction t estimates: distance of the median of `head` from the `level`.

    Args:
        level: the mean of k earlier runs.
        head: n runs.
        noise: standard deviation s between runs.
        excess: extra variance of a head run with fewer launches.

    Returns:
        The difference with the error √((s² + excess)·v(n) + s²/k), v by :func:`variance_of_median`.
    """
    share = variance_of_median(head.shape[-1])
    variance = noise.deviation**2
    return Estimates(
        mean=np.median(head, axis=-1) - level.mean,
        error=np.sqrt((variance + excess) * share + variance / level.count),
        dof=np.asarray(noise.dof),
    )


def prediction_sample(series: LaunchValues) -> Sample:
    """Sample of the head against earlier runs, all positive.

    The noise is that of the level or of the later runs, whichever is larger: runs of one session do
    not show the noise between days, and later runs may be few.
    """
    samples = series.samples
    level, steps = _logs(series, samples.level), _logs(series, samples.steps)
    noises = [noise_about_level(level)] if len(level) >= FEWEST else []
    noises += [noise_of_steps(steps)] if len(steps) >= FEWEST else []
    noise = max(noises, key=lambda noise: float(noise.deviation))
    runs = [_logs(series, launches) for launches in samples.launches if len(launches) > 1]
    # A head run of fewer launches than the earlier ones varies more.
    excess = variance_of_median(series.fewest_launches) - _mean_share(samples.launches)
    excess_variance = max(0.0, excess) * variance_within(runs)
    centre, sign, head = level_of(level), _sign(series), _logs(series, series.head)
    return Sample(
        series=series,
        estimates=prediction_estimates(centre, head, noise, excess_variance),
        spread=float(noise.deviation),
        noise=math.sqrt(float(noise.deviation) ** 2 + excess_variance),
        base=math.exp(sign * float(centre.mean)),
        head=math.exp(sign * float(np.median(head))),
        launches=samples.count,
    )


def _mean_share(runs: Sequence[Sequence[float]]) -> float:
    """Mean variance of the runs' medians, relative to a single launch's."""
    return sum(variance_of_median(max(1, len(launches))) for launches in runs) / len(runs)


def _logs(series: LaunchValues, values: Sequence[float]) -> Floats:
    return _sign(series) * np.log(np.asarray(values, dtype=np.float64))


def _sign(series: LaunchValues) -> float:
    return -1.0 if series.better == "higher" else 1.0
