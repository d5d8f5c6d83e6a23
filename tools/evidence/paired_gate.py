"""Writes docs/evidence/paired_gate.md: what ``gpubench ab`` makes of suites whose truth is known.

    python tools/evidence/paired_gate.py

Takes about ten minutes on two cores. The draws are seeded: the numbers are the same each time. In
brackets stands what the rules of before make of the same draws: a t of each benchmark's own spread,
the minimum alone, ``unchanged`` from the first look on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
from scipy import stats

from gpubench_plugin.compare.looks import LOOK, PAIRS, UNCHANGED_FROM
from gpubench_plugin.compare.statistics import Floats, judge_all_series, paired_estimates
from gpubench_plugin.compare.threshold import better_bar, worse_bar
from gpubench_plugin.config.limits import Limit
from tests.support import simulation as sim
from tests.support.replay import Recording, stretched
from tools.evidence.pages import Row, Table, write

SUITES = 20_000
CAUGHT = 10_000
CHUNK = 2_000
Q_BEFORE = 0.01 / 3


@dataclass(frozen=True, kw_only=True)
class Case:
    """A number of suites; `drawn` gives the log ratios of the parts that are judged.

    The first benchmark of each is slower by the `effect`.
    """

    drawn: Callable[[int, int], Mapping[str, Floats]]
    suites: int
    effect: float = 0.0
    pairs: int = PAIRS
    limit: str = "2%"
    unchanged_from: int = UNCHANGED_FROM


@dataclass(frozen=True, kw_only=True)
class Usual:
    """Another way to judge, of an effect and a number of suites."""

    judge: Callable[[float, int], sim.Kinds]
    suites: int


def counted(case: Case | Usual) -> Row:
    """What came of the case, with what came of it before in brackets."""
    if isinstance(case, Usual):
        alarms = sim.rates(case.judge(0.0, case.suites), 0.0).alarms
        slower = sim.rates(case.judge(0.05, case.suites), 0.05)
        return {
            "alarms": f"{alarms:.1%}",
            "5% caught": f"{slower.caught:.1%}",
            "5% taken for unchanged": f"{slower.cleared:.1%}",
        }
    now, before = [], []
    for _ in range(0, case.suites, CHUNK):
        drawn = dict(case.drawn(min(CHUNK, case.suites), case.pairs))
        for values in drawn.values():
            values[:, 0] += np.log1p(case.effect)
        limit = Limit.parse(case.limit, "limit")
        limits = {part: sim.LOOSE if part == "rate" else limit for part in drawn}
        now.append(sim.step_times(drawn, limits, case.unchanged_from))
        before.append(_before(drawn["floor"], limit, min(case.pairs, PAIRS)))
    cells, old = _cells(now, case), _cells(before, case)
    return {name: f"{cell} ({old[name]})" for name, cell in cells.items()}


def _cells(courses: list[sim.Course], case: Case) -> dict[str, str]:
    kinds = np.concatenate([one.kinds for one in courses])
    pairs = np.concatenate([one.pairs for one in courses])
    others = kinds[:, 1:] if case.effect else kinds
    alarms = int((others == "regressed").any(axis=1).sum())
    better = float((others == "improved").any(axis=1).mean())
    return {
        "alarms": f"{alarms / len(kinds):.2%}",
        "at most": f"{_at_most(alarms, len(kinds)):.2%}",
        "called improved": f"{better:.2%}",
        "caught": f"{(kinds[:, 0] == 'regressed').mean():.1%}",
        "pairs": f"{pairs[:, 0].mean():.1f}",
        "unchanged": f"{(kinds[:, 0] == 'unchanged').mean():.1%}",
        "regressed": f"{(kinds[:, 0] == 'regressed').mean():.1%}",
        "unchanged of all": f"{(kinds == 'unchanged').mean():.1%}",
        "pairs of the suite": f"{pairs.max(axis=1).mean():.1f}",
        "launches of a benchmark": f"{2 * pairs.mean():.0f}",
    }


def _at_most(count: int, number: int) -> float:
    """The upper 95% bound of a share (C. Clopper and E. Pearson, 1934)."""
    return float(stats.beta.ppf(0.95, count + 1, number - count)) if count < number else 1.0


def _before(differences: Floats, limit: Limit, most: int) -> sim.Course:
    """The rules before: no shared spread, no ranks, one part, unchanged at any look."""
    kinds = np.full(differences.shape[:-1], "inconclusive", dtype="<U12")
    used = np.zeros(kinds.shape, dtype=int)
    for pairs in range(LOOK, most + 1, LOOK):
        undecided = kinds == "inconclusive"
        used[undecided] = pairs
        plain = paired_estimates(differences[..., :pairs])
        findings = judge_all_series(
            type(plain)(
                mean=plain.mean,
                error=np.where(undecided, plain.error, np.inf),  # the others are not rejected
                dof=plain.dof,
            ),
            np.asarray(worse_bar(limit, "lower")),
            np.asarray(better_bar(limit, "lower")),
            m=differences.shape[-2],
            q=Q_BEFORE,
        )
        for kind in ("regressed", "improved", "unchanged"):
            kinds[undecided & getattr(findings, kind)] = kind
    return sim.Course(kinds=kinds, pairs=used)


def alone(drawn: sim.Differences) -> Callable[[int, int], Mapping[str, Floats]]:
    """A suite in which one number of each benchmark is judged."""
    return lambda suites, pairs: {"floor": drawn(suites, pairs)}


def sharing(noise: float, own: Mapping[str, float]) -> Callable[[int, int], Mapping[str, Floats]]:
    """All parts, each with the noise of the launch and some of its own."""
    generator = np.random.default_rng(11)

    def drawn(suites: int, pairs: int) -> Mapping[str, Floats]:
        shape, both = (suites, sim.BENCHMARKS, pairs), 2**0.5
        common = both * noise * generator.standard_normal(shape)
        return {
            part: common + both * more * generator.standard_normal(shape)
            for part, more in own.items()
        }

    return drawn


def launchwise(share: float, slower: float) -> Callable[[int, int], Mapping[str, Floats]]:
    """A head of which a `share` of the launches is `slower`; quiet otherwise."""
    generator = np.random.default_rng(13)
    quiet = alone(sim.noise_kinds(17)["normal, 0.5%"])

    def drawn(suites: int, pairs: int) -> Mapping[str, Floats]:
        values = dict(quiet(suites, pairs))["floor"] * 0.6
        slow = generator.random((suites, pairs)) < share
        values[:, 0] += slow * np.log1p(slower)
        return {"floor": values}

    return drawn


QUIET = {"floor": 0.003, "median": 0.005, "rate": 0.03}
LOUD = {"floor": 0.01, "median": 0.02, "rate": 0.06}
EQUAL = sim.noise_kinds(3)
HEADS: Mapping[str, Callable[[Floats], Floats]] = {
    "as the base": lambda durations: durations,
    "all calls 10% slower": lambda durations: durations * 1.1,
    "three of five calls 3 times as long": partial(stretched, every=(0, 1, 2), of=5, by=3.0),
    "half of the calls 10% slower": partial(stretched, every=(0,), of=2, by=1.1),
    "every 8th call 10 times as long": partial(stretched, every=(0,), of=8, by=10.0),
    "every 50th call 10 times as long": partial(stretched, every=(0,), of=50, by=10.0),
}

TABLES = [
    Table(
        title="False alarms: suites without any effect",
        columns=("alarms", "at most", "called improved"),
        cases={
            **{
                name: Case(drawn=alone(drawn), suites=SUITES)
                for name, drawn in sim.noise_kinds(5).items()
            },
            "three parts, 2% shared, 1, 1.5 and 5% of their own": Case(
                drawn=sharing(0.02, {"floor": 0.01, "median": 0.015, "rate": 0.05}),
                suites=SUITES,
            ),
            "three parts, each with its own 3%": Case(
                drawn=sharing(0.0, {"floor": 0.03, "median": 0.03, "rate": 0.03}),
                suites=SUITES,
            ),
            **{
                f"three parts {how} 1%, {words} with 3%": Case(
                    drawn=sim.loud_ones(count, seed=19, as_one=as_one),
                    suites=SUITES,
                )
                for how, as_one in (("that each vary by", False), ("that vary as one by", True))
                for count, words in ((1, "one benchmark"), (2, "two benchmarks"))
            },
        },
    ),
    Table(
        title="Power: one benchmark of 20 is slower",
        columns=("caught", "pairs", "unchanged"),
        cases={
            f"{noise}: {effect:.0%} slower": Case(
                drawn=alone(EQUAL[noise]),
                suites=CAUGHT,
                effect=effect,
            )
            for noise in ("normal, 0.5%", "normal, 1.0%", "normal, 2.0%", "mixed, 0.3 to 3%")
            for effect in (0.02, 0.03, 0.05, 0.10)
        },
    ),
    Table(
        title="A quiet benchmark in a loud suite: it is slower, 16 of 20 vary by 12%",
        columns=("caught", "pairs", "unchanged"),
        cases={
            f"{noise:.1%} of noise, {effect:.0%} slower": Case(
                drawn=alone(sim.among_loud(noise, seed=37)),
                suites=CAUGHT,
                effect=effect,
            )
            for noise in (0.003, 0.01)
            for effect in (0.03, 0.05, 0.10)
        },
    ),
    Table(
        title="More pairs: a limit of 1%, a true 2%",
        columns=("caught", "pairs"),
        cases={
            f"{noise}, --pairs={pairs}": Case(
                drawn=alone(EQUAL[noise]),
                suites=CAUGHT,
                effect=0.02,
                limit="1%",
                pairs=pairs,
            )
            for noise in ("normal, 0.5%", "normal, 1.0%")
            for pairs in (15, 30)
        },
    ),
    Table(
        title="Launches that are slow now and then",
        columns=("unchanged", "regressed"),
        cases={
            f"{share:.0%} of launches {slower:.0%} slower, unchanged from {pairs} pairs": Case(
                drawn=launchwise(share, slower),
                suites=CAUGHT,
                unchanged_from=pairs,
            )
            for share, slower in ((0.2, 0.5), (0.1, 0.3), (0.3, 0.33))
            for pairs in (5, 10, 15)
        },
    ),
    Table(
        title="What an equal head costs: up to 15 pairs",
        columns=("unchanged of all", "launches of a benchmark", "pairs of the suite"),
        cases={
            f"{words}, unchanged from {pairs} pairs": Case(
                drawn=sharing(0.0, noise),
                suites=CAUGHT,
                unchanged_from=pairs,
            )
            for words, noise in (
                ("0.3% of noise (median 0.5, rate 3%)", QUIET),
                ("1% of noise (median 2, rate 6%)", LOUD),
            )
            for pairs in (5, 10, 15)
        },
    ),
    Table(
        title="The usual ways: one process of each side",
        columns=("alarms", "5% caught", "5% taken for unchanged"),
        cases={
            **{
                f"a threshold of 2%, {noise:.1%} of noise": Usual(
                    judge=partial(sim.by_threshold, sim.normal(noise, 7)),
                    suites=CHUNK,
                )
                for noise in sim.NOISES
            },
            **{
                f"pytest-benchmark's median:5%, {noise:.1%} of noise": Usual(
                    judge=partial(sim.by_median, sim.processes(noise, 7)),
                    suites=CHUNK,
                )
                for noise in sim.NOISES
            },
            **{
                f"Mann-Whitney within processes, {noise:.1%} of noise": Usual(
                    judge=partial(sim.by_mann_whitney, sim.processes(noise, 7)),
                    suites=500,
                )
                for noise in sim.NOISES
            },
        },
    ),
    Table(
        title="Replayed launches: heads of five recorded benchmarks",
        columns=("unchanged", "regressed", "pairs"),
        cases={
            f"{name}, {head}": Case(drawn=Recording(name).parts(23, changed), suites=CHUNK)
            for name in Recording.names()
            for head, changed in HEADS.items()
        }
        | {
            f"{name}, as the base, its noise scaled to {noise:.1%}": Case(
                drawn=Recording(name).parts(29, noise=noise),
                suites=CHUNK,
            )
            for name in Recording.names()
            for noise in (0.005, 0.01)
        },
    ),
]


INTRODUCTION = """# What the paired gate calls, and what it does not

`python tools/evidence/paired_gate.py` writes this page. It runs the code that judges real launches
on suites of 20 benchmarks whose truth is known, up to 15 pairs with looks after 5, 10 and 15, limit
2% where nothing else is said. In brackets stands what the rules of before made of the same draws:
the minimum alone, each benchmark with its own spread, `unchanged` from the first look on.
*Alarms* are suites in which something that is no slower was called `regressed`; *at most* is the
upper end of their 95% interval. *Caught*, *unchanged* and *pairs* are those of the slower one.
"""

CONCLUSION = """An effect of 2% is exactly the limit, so that little more than half of them can be
called. The rate of a clock of the host is loose: it is unchanged unless it is likely to be worse by
its limit of 5%. The recorded launches are of five small torch benchmarks in fresh processes on a
CPU (`tests/support/data`); *stalling* has calls that take 50 times as long as the others. A head
that is slower in some of its calls is made from the recorded durations, as if each were one call.
Their machine had neighbours: floors vary by 0.7 to 2.6% from launch to launch, medians by 3 to
8%.
*Scaled* they keep their modes and slow launches, in proportion; floor or median, whichever varies
more, varies by what is said.
"""


if __name__ == "__main__":
    write("paired_gate.md", INTRODUCTION, TABLES, counted, CONCLUSION)
