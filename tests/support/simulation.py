"""Suites of benchmarks with a known truth, and what each kind of gate makes of them.

A suite has :data:`BENCHMARKS` benchmarks, of which the first is made slower by `effect`. What comes
out of a launch of fresh processes is a log value with the between-launch `noise`. The gates are the
code that judges real runs, here for thousands of suites at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from gpubench_plugin.compare.launch_values import FEWEST
from gpubench_plugin.compare.looks import LOOK, PAIRS, UNCHANGED_FROM, false_discovery_rate
from gpubench_plugin.compare.matched_metrics import HOST_RATE_LIMIT
from gpubench_plugin.compare.prediction import (
    level_of,
    noise_about_level,
    noise_of_steps,
    prediction_estimates,
)
from gpubench_plugin.compare.statistics import (
    Bools,
    Estimates,
    Floats,
    OwnPairs,
    Spread,
    judge_all_series,
    paired_estimates,
    spread_about_mean,
)
from gpubench_plugin.compare.t_tests import estimate_prior, membership, posterior_spread
from gpubench_plugin.compare.threshold import better_bar, worse_bar
from gpubench_plugin.config.limits import DEFAULT, Limit

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


Differences: TypeAlias = Callable[[int, int], Floats]
"""`drawn(suites, pairs)`: log ratios of pairs without any effect, shaped (suites,
:data:`BENCHMARKS`, pairs)."""


def noise_kinds(seed: int) -> dict[str, Differences]:
    """Ways in which launches vary, each with draws of its own; pairs are taken in turns."""
    generator = np.random.default_rng(seed)
    draw = generator.standard_normal

    def both(side: Callable[[int, int], Floats]) -> Differences:
        return lambda suites, pairs: side(suites, pairs) - side(suites, pairs)

    def bimodal(share: float) -> Differences:
        """Launches in one of two modes, 3 to 10% apart, in a `share` of the benchmarks."""

        def drawn(suites: int, pairs: int) -> Floats:
            gap = generator.uniform(0.03, 0.10, (suites, BENCHMARKS, 1))
            gap *= generator.random((suites, BENCHMARKS, 1)) < share

            def side() -> Floats:
                slow = generator.random((suites, BENCHMARKS, pairs)) < 0.5
                return 0.003 * draw((suites, BENCHMARKS, pairs)) + slow * gap

            return side() - side()

        return drawn

    def heavy(suites: int, pairs: int) -> Floats:
        return 0.01 * generator.standard_t(3, (suites, BENCHMARKS, pairs))

    def spiky(suites: int, pairs: int) -> Floats:
        shape = (suites, BENCHMARKS, pairs)
        slow = generator.random(shape) < 0.05
        return 0.005 * draw(shape) + slow * np.log1p(generator.uniform(0.05, 0.3, shape))

    def drifting(suites: int, pairs: int) -> Floats:
        """By 30% from the first launch to the last."""
        launches = 0.01 * draw((suites, BENCHMARKS, 2 * pairs))
        return in_turns(launches + np.linspace(0, 0.3, 2 * pairs))

    def dependent(suites: int, pairs: int) -> Floats:
        """An autoregression of 0.9 from launch to launch, 3% wide."""
        steps = 0.03 * draw((suites, BENCHMARKS, 2 * pairs))
        launches = steps.copy()
        for n in range(1, 2 * pairs):
            launches[..., n] = 0.9 * launches[..., n - 1] + 0.19**0.5 * steps[..., n]
        return in_turns(launches + 0.003 * draw(launches.shape))

    def mixed(suites: int, pairs: int) -> Floats:
        """Each benchmark of a suite with its own noise, 0.3 to 3%."""
        noise = np.exp(generator.uniform(np.log(0.003), np.log(0.03), (suites, BENCHMARKS, 1)))
        return noise * draw((suites, BENCHMARKS, pairs))

    def one_loud(suites: int, pairs: int) -> Floats:
        noise = np.full((BENCHMARKS, 1), 0.01)
        noise[0] = 0.03
        return noise * draw((suites, BENCHMARKS, pairs))

    kinds: dict[str, Differences] = {
        **{f"normal, {noise:.1%}": both(normal(noise, seed + 1)) for noise in NOISES},
        "heavy tails (t with 3 degrees of freedom)": both(heavy),
        "5% of launches 5 to 30% slower": both(spiky),
        "bimodal": bimodal(1.0),
        "half of the suite bimodal": bimodal(0.5),
        "drifting": drifting,
        "autocorrelated": dependent,
        "mixed, 0.3 to 3%": both(mixed),
        "one loud, 3% among 1%": both(one_loud),
    }

    def of_all_kinds(suites: int, pairs: int) -> Floats:
        """Benchmark by benchmark another kind."""
        some = [kinds[name](suites, pairs) for name in ("normal, 1.0%", "bimodal", *_LAST)]
        return np.stack([some[n % len(some)][:, n] for n in range(BENCHMARKS)], axis=1)

    return {**kinds, "one suite of all these": of_all_kinds}


_LAST: Final = ("heavy tails (t with 3 degrees of freedom)", "mixed, 0.3 to 3%")


def in_turns(launches: Floats) -> Floats:
    """The differences of pairs of launches in the order of time: A B, B A, A B and so on."""
    first, second = launches[..., ::2], launches[..., 1::2]
    return (second - first) * np.where(np.arange(first.shape[-1]) % 2, -1.0, 1.0)


def by_pairs(draw: Draw, effect: float, suites: int, pairs: int = PAIRS) -> Kinds:
    """The verdicts of the paired gate after its looks; only undecided ones go on to the next."""
    base, head = draw(suites, pairs), slower(draw(suites, pairs), effect)
    return sequential(head - base).kinds


@dataclass(frozen=True, kw_only=True)
class Course:
    """The verdicts, and the pairs that each took, both shaped (suites, benchmarks)."""

    kinds: Kinds
    pairs: NDArray[np.int_]


def sequential(
    differences: Floats, limit: Limit = LIMIT, unchanged_from: int = UNCHANGED_FROM
) -> Course:
    """The verdicts on log ratios shaped (suites, benchmarks, pairs)."""
    return step_times({"floor": differences}, {"floor": limit}, unchanged_from)


LOOSE: Final = Limit.parse(HOST_RATE_LIMIT, "gate.limits")


def step_times(
    differences: Mapping[str, Floats],
    limits: Mapping[str, Limit],
    unchanged_from: int = UNCHANGED_FROM,
) -> Course:
    """The verdicts on step times by their parts, as a clock of the host takes them.

    The log ratios of each part are shaped (suites, benchmarks, pairs); the part ``rate`` is loose.
    """
    shape = next(iter(differences.values())).shape
    kinds = np.full(shape[:-1], "inconclusive", dtype="<U12")
    used = np.zeros(kinds.shape, dtype=int)
    deviations = {part: np.zeros(kinds.shape) for part in differences}
    for number, pairs in enumerate(range(LOOK, shape[-1] + 1, LOOK), start=1):
        undecided = kinds == "inconclusive"
        used[undecided] = pairs
        owns, priors = {}, {}
        for part, values in differences.items():
            owns[part] = own = spread_about_mean(values[..., :pairs])
            deviations[part] = np.where(undecided, own.deviation, deviations[part])
            priors[part] = estimate_prior(Spread(deviation=deviations[part], dof=used - 1.0))
        memberships = [membership(owns[part], priors[part]) for part in differences]
        members = np.min(np.broadcast_arrays(*memberships), axis=0)
        estimates = [
            paired_estimates(
                values[..., :pairs], posterior_spread(owns[part], priors[part], pairs, members)
            )
            for part, values in differences.items()
        ]
        findings = judge_all_series(
            _only(_side_by_side(estimates), np.tile(undecided, len(differences))),
            _repeated([worse_bar(limits[part], "lower") for part in differences], shape[-2]),
            _repeated([better_bar(limits[part], "lower") for part in differences], shape[-2]),
            m=len(differences) * shape[-2],
            q=false_discovery_rate(number),
            loose=_repeated([part == "rate" for part in differences], shape[-2]),
        )
        shaped = (shape[0], len(differences), shape[1])
        regressed = findings.regressed.reshape(shaped)
        improved = findings.improved.reshape(shaped)
        unchanged = findings.unchanged.reshape(shaped)
        if pairs < unchanged_from:
            unchanged &= np.array([part == "rate" for part in differences])[:, None]
        fine = (unchanged | improved).all(axis=1)
        kinds[undecided & fine] = "unchanged"
        kinds[undecided & fine & improved.any(axis=1)] = "improved"
        kinds[undecided & regressed.any(axis=1)] = "regressed"
    return Course(kinds=kinds, pairs=used)


def among_loud(noise: float, seed: int) -> Differences:
    """Four benchmarks with this noise, all others with 12%."""
    draw = np.random.default_rng(seed).standard_normal
    noises = np.full((BENCHMARKS, 1), 0.12 * 2**0.5)
    noises[:4] = noise * 2**0.5
    return lambda suites, pairs: noises * draw((suites, BENCHMARKS, pairs))


def loud_ones(
    count: int, seed: int, *, as_one: bool = False
) -> Callable[[int, int], Mapping[str, Floats]]:
    """Three parts, each with 1% of noise of its own, or all `as_one`.

    `count` of the benchmarks have 3%.
    """
    draw = np.random.default_rng(seed).standard_normal
    noise = np.full((BENCHMARKS, 1), 0.01 * 2**0.5)
    noise[:count] *= 3

    def drawn(suites: int, pairs: int) -> Mapping[str, Floats]:
        shape = (suites, BENCHMARKS, pairs)
        common = noise * draw(shape)
        return {
            part: common.copy() if as_one else noise * draw(shape)
            for part in ("floor", "median", "rate")
        }

    return drawn


def _side_by_side(estimates: Sequence[Estimates]) -> Estimates:
    """The parts one after the other, as the tests of one suite."""

    def joined(values: Sequence[Any]) -> Floats:
        shape = np.shape(estimates[0].mean)
        return np.concatenate([np.broadcast_to(value, shape) for value in values], axis=-1)

    owns = [one.own_pairs for one in estimates if one.own_pairs is not None]
    return Estimates(
        mean=joined([one.mean for one in estimates]),
        error=joined([one.error for one in estimates]),
        dof=joined([one.dof for one in estimates]),
        floor=joined([one.floor for one in estimates]),
        own_pairs=OwnPairs(
            count=joined([one.count for one in owns]),
            error=joined([one.error for one in owns]),
            median=joined([one.median for one in owns]),
            p_above=joined([one.p_above for one in owns]),
            p_below=joined([one.p_below for one in owns]),
        ),
    )


def _only(estimates: Estimates, undecided: Bools) -> Estimates:
    """Estimates of which only the `undecided` can be rejected."""
    own = estimates.own_pairs
    return replace(
        estimates,
        error=np.where(undecided, estimates.error, np.inf),
        own_pairs=own and replace(own, error=np.where(undecided, own.error, np.inf)),
    )


def _repeated(values: Sequence[Any], times: int) -> NDArray[Any]:
    return np.repeat(np.array(values), times)


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
    spread = noise_about_level(base) if pinned is None else noise_of_steps(base)
    found = judge_all_series(
        prediction_estimates(level_of(base[..., :pinned]), head, spread),
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
