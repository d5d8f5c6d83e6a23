"""Suites of benchmarks with a known truth, and what each kind of gate makes of them.

A suite has :data:`BENCHMARKS` benchmarks, of which the first is made slower by `effect`. What comes
out of a launch of fresh processes is a log value with the between-launch `noise`. The gates are the
code that judges real runs, here for thousands of suites at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from gpubench_plugin.compare import (
    FEWEST,
    LOOK,
    PAIRS,
    UNCHANGED_FROM,
    Bools,
    Floats,
    Spread,
    better_bar,
    find,
    moderated,
    paired,
    prediction,
    prior_of,
    rate_of_look,
    spread_about_mean,
    spread_of_steps,
    worse_bar,
)
from gpubench_plugin.config import DEFAULT, Limit

NOISES: Final = (0.005, 0.01, 0.02, 0.03)
EFFECTS: Final = (0.0, 0.02, 0.03, 0.05, 0.10)
BENCHMARKS: Final = 20
WITHIN: Final = 0.005
"""The noise of the samples of one process, far below that between processes, as it really is."""
SAMPLES: Final = 30

LIMIT: Final = Limit.parse(DEFAULT, "gate.limits")
Kinds: TypeAlias = NDArray[Any]
Draw: TypeAlias = Callable[[int, int], Floats]
"""`draw(suites, launches)`: the log values of launches without any effect, shaped (suites,
:data:`BENCHMARKS`, launches)."""
Sample: TypeAlias = Callable[[int], Floats]
"""`sample(suites)`: the log values of all samples of one process without any effect, shaped
(suites, :data:`BENCHMARKS`, samples)."""


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Shares of many suites.

    `alarms`: suites in which a benchmark that is no slower was called regressed. `caught`,
    `cleared`: how often the benchmark that is slower was called regressed, unchanged. Without an
    effect both are those of the first benchmark of a suite.
    """

    alarms: float
    caught: float
    cleared: float


def normal(noise: float, seed: int) -> Draw:
    """Launches whose log values are normal. Equal seeds give the same ones, scaled by `noise`."""
    generator = np.random.default_rng(seed)
    return lambda suites, launches: (
        noise * generator.standard_normal((suites, BENCHMARKS, launches))
    )


def processes(noise: float, seed: int) -> Sample:
    """Processes whose own noise is far smaller than that between them."""
    generator = np.random.default_rng(seed)
    draw = normal(noise, seed + 1)
    return lambda suites: (
        draw(suites, 1) + WITHIN * generator.standard_normal((suites, BENCHMARKS, SAMPLES))
    )


def by_pairs(draw: Draw, effect: float, suites: int, pairs: int = PAIRS) -> Kinds:
    """The verdicts of the paired gate after its looks; only undecided ones go on to the next."""
    base, head = draw(suites, pairs), slower(draw(suites, pairs), effect)
    return sequential(head - base).kinds


@dataclass(frozen=True, kw_only=True)
class Sequence:
    """The verdicts, and the pairs that each took, both shaped (suites, benchmarks)."""

    kinds: Kinds
    pairs: NDArray[np.int_]


def sequential(
    differences: Floats, limit: Limit = LIMIT, unchanged_from: int = UNCHANGED_FROM
) -> Sequence:
    """The verdicts on log ratios shaped (suites, benchmarks, pairs)."""
    kinds = np.full(differences.shape[:-1], "inconclusive", dtype="<U12")
    used = np.zeros(kinds.shape, dtype=int)
    deviation = np.zeros(kinds.shape)
    for number, pairs in enumerate(range(LOOK, differences.shape[-1] + 1, LOOK), start=1):
        undecided = kinds == "inconclusive"
        used[undecided] = pairs
        own = spread_about_mean(differences[..., :pairs])
        deviation = np.where(undecided, own.deviation, deviation)
        prior = prior_of(Spread(deviation=deviation, freedom=used - 1.0))
        findings = find(
            paired(differences[..., :pairs], moderated(own, prior, pairs)),
            np.asarray(worse_bar(limit, "lower")),
            np.asarray(better_bar(limit, "lower")),
            m=differences.shape[-2],
            q=rate_of_look(number),
            undecided=undecided,
        )
        for kind in ("regressed", "improved", "unchanged"):
            if kind != "unchanged" or pairs >= unchanged_from:
                kinds[undecided & getattr(findings, kind)] = kind
    return Sequence(kinds=kinds, pairs=used)


def by_history(
    draw: Draw,
    effect: float,
    suites: int,
    earlier: int = FEWEST,
    *,
    pinned: int | None = None,
    since: int | None = None,
) -> Kinds:
    """The verdicts of the history gate about one launch after `earlier` ones.

    All of these are pinned, or only the first `pinned`. Those from number `since` on are slower by
    the `effect` already.
    """
    base, head = draw(suites, earlier), slower(draw(suites, 1), effect)
    if since is not None:
        base[..., since:] = slower(base[..., since:], effect)
    spread = spread_about_mean(base) if pinned is None else spread_of_steps(base)
    found = find(
        prediction(base[..., :pinned], head, spread),
        np.asarray(worse_bar(LIMIT, "lower")),
        np.asarray(better_bar(LIMIT, "lower")),
        m=BENCHMARKS,
    )
    kinds = np.full(base.shape[:-1], "inconclusive", dtype="<U12")
    for kind in ("regressed", "improved", "unchanged"):
        kinds[getattr(found, kind)] = kind
    return kinds


def by_threshold(draw: Draw, effect: float, suites: int, limit: float = LIMIT.bound) -> Kinds:
    """The verdicts of a threshold on one launch of each side."""
    base, head = draw(suites, 1), slower(draw(suites, 1), effect)
    return _called(np.expm1(head - base)[..., 0] >= limit)


def by_median(sample: Sample, effect: float, suites: int, limit: float = 0.05) -> Kinds:
    """The verdicts of ``--benchmark-compare-fail=median:5%`` on one process of each side."""
    base, head = sample(suites), slower(sample(suites), effect)
    ratio = np.exp(np.median(head, axis=-1) - np.median(base, axis=-1))
    return _called(ratio - 1 > limit)


def by_mann_whitney(sample: Sample, effect: float, suites: int, alpha: float = 0.01) -> Kinds:
    """The verdicts of a Mann-Whitney test on the samples of one process of each side."""
    base, head = sample(suites), slower(sample(suites), effect)
    found = stats.mannwhitneyu(head, base, alternative="greater", method="asymptotic", axis=-1)
    return _called(np.asarray(found.pvalue < alpha))


def rates(kinds: Kinds, effect: float) -> Rates:
    """What came out of suites whose first benchmark is slower by `effect`."""
    untouched = kinds[:, 1:] if effect else kinds
    return Rates(
        alarms=float((untouched == "regressed").any(axis=1).mean()),
        caught=float((kinds[:, 0] == "regressed").mean()),
        cleared=float((kinds[:, 0] == "unchanged").mean()),
    )


def slower(launches: Floats, effect: float) -> Floats:
    """The same log values with the first benchmark of each suite slower by `effect`."""
    changed = launches.copy()
    changed[:, 0] += np.log1p(effect)
    return changed


def _called(slow: Bools) -> Kinds:
    return np.where(slow, "regressed", "unchanged")
