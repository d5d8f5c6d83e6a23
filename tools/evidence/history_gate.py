"""Writes docs/evidence/history_gate.md: what the history gate calls in suites of known truth.

    python tools/evidence/history_gate.py --against=CHECKOUT

Takes about ten minutes. The draws are seeded: the numbers are the same each time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

# Last: the package may be that of another checkout, which PYTHONPATH names.
sys.path.append(str(Path(__file__).resolve().parents[2]))

import numpy as np
from numpy.random import Generator

from gpubench_plugin.compare import confirmation
from gpubench_plugin.compare.history import judge_history
from gpubench_plugin.compare.launch_values import LaunchValues
from gpubench_plugin.compare.statistics import Floats
from gpubench_plugin.config.limits import DEFAULT, Limit
from tools.evidence import pages

BENCHMARKS = 20
SUITES = 1_000
SLOW = 1_000
LIMIT = Limit.parse(DEFAULT, "limit")
EFFECTS = (0.05, 0.10)
SEED = 14
RELAUNCHES = confirmation.RELAUNCHES

Draw: TypeAlias = Callable[[Generator], "Suite"]


@dataclass(frozen=True, kw_only=True)
class Suite:
    """Log values of the launches of a suite without any effect.

    `earlier` are shaped (benchmarks, pinned runs, launches of a run), `head` (benchmarks, runs):
    the run that is judged, and its further launches.
    """

    earlier: Floats
    head: Floats


Noise: TypeAlias = Callable[[Generator, tuple[int, ...]], Floats]


def independent(noise: Noise, *, launches: int = 1) -> Draw:
    """Ten pinned runs and a head whose launches know nothing of each other."""

    def drawn(generator: Generator) -> Suite:
        earlier = noise(generator, (BENCHMARKS, 10, launches))
        return Suite(earlier=earlier, head=noise(generator, (BENCHMARKS, 1 + RELAUNCHES)))

    return drawn


def normal(deviation: float) -> Noise:
    """Of that standard deviation."""
    return lambda generator, shape: deviation * generator.standard_normal(shape)


def slow_launches(share: float, low: float = 0.05, high: float = 0.30) -> Noise:
    """Normal noise of 0.5%, and in that `share` of launches so much more."""

    def drawn(generator: Generator, shape: tuple[int, ...]) -> Floats:
        slower = np.log1p(generator.uniform(low, high, shape))
        hit = generator.random(shape) < share
        values: Floats = 0.005 * generator.standard_normal(shape) + np.where(hit, slower, 0.0)
        return values

    return drawn


def heavy(generator: Generator, shape: tuple[int, ...]) -> Floats:
    """Student's t with three degrees of freedom, whose tails are heavy."""
    values: Floats = 0.005 * generator.standard_t(3, shape)
    return values


def mixed_suite(generator: Generator) -> Suite:
    """Every benchmark has a noise of its own, the same in all its launches."""
    deviation = np.exp(generator.uniform(np.log(0.003), np.log(0.03), BENCHMARKS))
    suite = independent(normal(1.0))(generator)
    return Suite(
        earlier=suite.earlier * deviation[:, None, None], head=suite.head * deviation[:, None]
    )


def by_day(deviation: float, *, sittings: int) -> Draw:
    """Days that differ; the ten pins are of so many days, the head's launches of another one."""

    def drawn(generator: Generator) -> Suite:
        suite = independent(normal(0.005))(generator)
        days = deviation * generator.standard_normal((BENCHMARKS, sittings + 1))
        of_pins = np.repeat(days[:, :-1], 10 // sittings, axis=1)
        return Suite(earlier=suite.earlier + of_pins[..., None], head=suite.head + days[:, -1:])

    return drawn


def random_walk(step: float, age: int) -> Draw:
    """A machine that wanders; the head is so many runs later than the last pin."""

    def drawn(generator: Generator) -> Suite:
        suite = independent(normal(0.005))(generator)
        walk = np.cumsum(step * generator.standard_normal((BENCHMARKS, 10 + age)), axis=1)
        earlier = suite.earlier + walk[:, :10, None]
        return Suite(earlier=earlier, head=suite.head + walk[:, -1:])

    return drawn


def bad_pin(wrong: float, deviation: float = 0.005) -> Draw:
    """One of the ten pins of every benchmark is so many times the others."""

    def drawn(generator: Generator) -> Suite:
        suite = independent(normal(deviation))(generator)
        earlier = suite.earlier.copy()
        earlier[np.arange(BENCHMARKS), generator.integers(0, 10, BENCHMARKS), 0] += np.log(wrong)
        return replace(suite, earlier=earlier)

    return drawn


CASES: dict[str, Draw] = {
    "normal, 0.5%": independent(normal(0.005)),
    "normal, 1%": independent(normal(0.01)),
    "normal, 2%": independent(normal(0.02)),
    "normal, 0.3 to 3% over the suite": mixed_suite,
    "heavy tails (t with 3 degrees), 0.5%": independent(heavy),
    "1% of launches 5 to 30% slower": independent(slow_launches(0.01)),
    "5% of launches 5 to 30% slower": independent(slow_launches(0.05)),
    "10% of launches 5% slower": independent(slow_launches(0.1, 0.05, 0.05)),
    "two modes, 5% apart": independent(slow_launches(0.5, 0.05, 0.05)),
    "one pin of ten 10% slower": bad_pin(1.1),
    "one pin of ten 10 times as slow": bad_pin(10.0),
    "pins of 3 launches, head of 1, normal, 2%": independent(normal(0.02), launches=3),
    "pins of 3 launches, head of 1, 1% of launches slow": independent(
        slow_launches(0.01), launches=3
    ),
    "days differ by 1%, pins of ten days": by_day(0.01, sittings=10),
    "days differ by 1%, pins of one sitting": by_day(0.01, sittings=1),
    "random walk of 0.2% a run, head 1 run later": random_walk(0.002, 1),
    "random walk of 0.2% a run, head 20 runs later": random_walk(0.002, 20),
}

INTRODUCTION = """# The history gate in suites of known truth

Written by `python tools/evidence/history_gate.py`: 1,000 simulated suites of 20 benchmarks for each
row, ten pinned runs of one launch unless it says otherwise, limit 2%, judged by the code that
judges real runs. In brackets the same where the median of three launches confirmed an alarm alone
(commit `db56f806`), of suites drawn anew.

*Suites that alarm* are those without any effect in which a benchmark is called regressed after its
three further launches, each of which must be beyond the limit, *before confirmation* those in which
one has an alarm at first. *Caught* is how often one of 1,000 benchmarks that are slower by so much
is called in the end, *before* at first. *Further launches* are those of the confirmation, in
percent of those of the suite.
"""
CONCLUSION = """\
Three further launches, each beyond the limit, end all but a few of the false alarms that slow
launches raise, and cost hardly any power. They are of the same hour as the first: where days differ
and all pins are of one sitting, or where the machine has wandered off since, all four are out
alike. Pin runs of different days.
"""
ALARMS, BEFORE, LAUNCHES = "suites that alarm", "before confirmation", "further launches"
CAUGHT = ("5% caught", "10% caught")
FIRST = {0.05: "5% before", 0.10: "10% before"}
COLUMNS = (ALARMS, BEFORE, CAUGHT[0], FIRST[0.05], CAUGHT[1], FIRST[0.10], LAUNCHES)


def series(earlier: Floats, head: Floats) -> LaunchValues:
    """One benchmark of a suite; a run of several launches counts as their median."""
    launches = np.exp(earlier)
    return LaunchValues(
        id="test_a",
        metric="step_time_s",
        unit="s",
        better="lower",
        limit=LIMIT,
        base=tuple(map(float, np.median(launches, axis=-1))),
        base_launches=tuple(tuple(map(float, run)) for run in launches),
        head=tuple(map(float, np.exp(head))),
    )


def called(every: list[LaunchValues]) -> list[bool]:
    """Which of them are called regressed at first; of several values of a head the first counts."""
    first = [replace(one, head=one.head[:1]) for one in every]
    return [one.kind == "regressed" for one in judge_history(first, m=BENCHMARKS)]


def confirmed(every: list[LaunchValues], alarms: list[bool]) -> list[bool]:
    """Which of the alarms stand after the further launches."""
    anew = [one for one, alarm in zip(every, alarms, strict=True) if alarm]
    verdicts = iter(judge_history(anew, m=BENCHMARKS) if anew else ())
    return [alarm and next(verdicts).kind == "regressed" for alarm in alarms]


def counted(draw: Draw) -> pages.Row:
    """The shares of suites, and of slower benchmarks, that are called."""
    generator = np.random.default_rng(SEED)
    before = after = launched = 0
    for _ in range(SUITES):
        suite = draw(generator)
        every = [series(*one) for one in zip(suite.earlier, suite.head, strict=True)]
        alarms = called(every)
        before, launched = before + any(alarms), launched + sum(alarms)
        after += any(confirmed(every, alarms)) if any(alarms) else 0
    row = {ALARMS: share(after, SUITES)}
    for effect, column in zip(EFFECTS, CAUGHT, strict=True):
        row[column], row[FIRST[effect]] = caught(draw, effect)
    row[BEFORE] = share(before, SUITES)
    row[LAUNCHES] = share(RELAUNCHES * launched, SUITES * BENCHMARKS)
    return row


def caught(draw: Draw, effect: float) -> tuple[str, str]:
    """How often a benchmark that is slower by `effect` is called, in the end and at first."""
    generator = np.random.default_rng(SEED + 1)
    before = after = 0
    for _ in range(SLOW // BENCHMARKS):
        suite = draw(generator)
        for earlier, head in zip(suite.earlier, suite.head, strict=True):
            slow = [series(earlier, head + np.log1p(effect))]
            alarms = called(slow)
            before += alarms[0]
            after += confirmed(slow, alarms)[0]
    return share(after, SLOW), share(before, SLOW)


def share(number: int, of: int) -> str:
    """A share in percent, with the digits that matter."""
    percent = 100 * number / of
    return f"{percent:.2f}%" if percent < 9.995 else f"{percent:.1f}%"


TABLES = [pages.Table("Suites of 20 benchmarks, ten pinned runs", COLUMNS, CASES)]

if __name__ == "__main__":
    pages.write("history_gate.md", INTRODUCTION, TABLES, counted, CONCLUSION)
