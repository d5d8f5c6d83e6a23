"""How often the interval of the median is right: the page docs/evidence/interval.md.

    python tools/evidence/interval.py [--against=CHECKOUT]

The real loop with its rule that ends measuring, on a clock that only the step moves. With
``--against`` the numbers of another checkout stand in brackets. Takes some minutes.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import fmean
from typing import TYPE_CHECKING
from unittest.mock import patch

# Last: the package may be that of another checkout, which PYTHONPATH names.
sys.path.append(str(Path(__file__).resolve().parents[2]))

from gpubench_plugin.measure import interval
from gpubench_plugin.measure.interval import median_interval
from tests.support import virtual_steps as steps
from tools.evidence.pages import Table, write

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.virtual_steps import Course

RUNS = {None: 200, "quick": 200, "full": 80}
PROFILES = tuple(RUNS)
FIXED_RUNS = 300
STEP_S = 0.002
SD = 0.02
BOUNDS = ("20", "30", "50")
SPREADS = ("ten half-widths", "no bound")
COLUMNS = ("right", "told", "half-width", "rounds", "narrow and wrong")
FIXED_COLUMNS = ("100 rounds", "500 rounds", "2000 rounds")
PHASES = {"a fiftieth": 50, "a twentieth": 20, "a tenth": 10, "a fifth": 5}

INTRODUCTION = """# How often the interval of the median is right

Written by `python tools/evidence/interval.py --against=CHECKOUT`; in brackets what commit
`f2007b9c` told, which went on to 500 rounds (in `quick` to 200), and to the limit of time where
there was no interval. Steps of 2 ms on a virtual clock, the real loop: warm-up, looks, limits. 200
runs a row, 80 in `full`, seeded.

*told*: how often a reader sees an interval, at 95%; in the other cases the number is in doubt.
*right*: of those told, how many hold the true median. *narrow and wrong*: told with a half-width of
1% at most, but wrong, of all runs. AR(1) φ: normal noise of which a share φ stays from round to
round. Modes: 1x and 1.2x, left at random after the given number of rounds on average, for half of
the time or 30% of it.

Where phases last for up to a twentieth of the timed span, at least 93% of the intervals are right
from 100 rounds on; the table of a fixed number of rounds shows it without the loop. Hardest are two
equal modes, of which one may fill the time by chance: with 200 rounds, which hold 20 of them, 93%
are right in 1,000 runs. Of phases of a tenth or a fifth of it a measurement sees too few:
some are not told, and the others are right less often. Phases longer than the measurement cannot be
seen at all.
None is told of fewer effective rounds than an interval of independent ones would need: six.

Three bounds rest on the last tables: rounds below which dependence may go unseen (100); independent
rounds below which measuring goes on, however narrow the interval (50); and the spread beyond which
fewer than 100 rounds are measured on. Each tells how often modes are told with ±1% where it is
another.
"""


@dataclass(frozen=True)
class Step:
    """A kind of step with its true median, relative to the step's steady time."""

    course: Callable[[Random], Course]
    truth: float = 1.0


@dataclass(frozen=True)
class Case:
    """A kind of step, under a profile."""

    step: Step
    profile: str | None
    step_s: float = STEP_S

    def counted(self) -> dict[str, str]:
        """What the loop tells of many runs."""
        right, widths, rounds, narrow = [], [], [], 0
        runs = RUNS[self.profile]
        for seed in range(runs):
            samples = steps.measured(
                self.step.course(Random(seed)), step_s=self.step_s, profile=self.profile
            )
            rounds.append(samples.rounds)
            if (ends := steps.told(samples)) is not None:
                right.append(ends[0] <= self.step.truth * self.step_s <= ends[2])
                widths.append((ends[2] - ends[0]) / 2 / ends[1])
                narrow += widths[-1] <= 0.01 and not right[-1]
        return {
            "right": f"{fmean(right):.0%}" if right else "none",
            "told": f"{len(right) / runs:.0%}",
            "half-width": f"{fmean(widths):.2%}" if widths else "none",
            "rounds": f"{fmean(rounds):.0f}",
            "narrow and wrong": f"{narrow / runs:.1%}",
        }


@dataclass(frozen=True)
class Fixed:
    """A kind of step for each number of rounds, without a loop."""

    step_of: Callable[[int], Step]

    def counted(self) -> dict[str, str]:
        """How many intervals hold the median, and how many there are."""
        return {column: self._told(int(column.split()[0])) for column in FIXED_COLUMNS}

    def _told(self, rounds: int) -> str:
        step, right = self.step_of(rounds), []
        for seed in range(FIXED_RUNS):
            course = step.course(Random(seed))
            found = median_interval([course(0.0, number) for number in range(rounds)])
            if found is not None:
                right.append(found.low <= step.truth <= found.high)
        told = len(right) / FIXED_RUNS
        return f"{fmean(right):.0%} of {told:.0%}" if right else "none told"


@dataclass(frozen=True)
class Bound:
    """How often modes are told with ±1%, where a constant of the interval is another."""

    case: Case
    constant: str
    values: dict[str, float]

    def counted(self) -> dict[str, str]:
        """For each value of the constant."""
        return {column: self._narrow(value) for column, value in self.values.items()}

    def _narrow(self, value: float) -> str:
        with patch.object(interval, self.constant, value, create=True):
            return self.case.counted()["narrow and wrong"]


def iid(sd: float) -> Step:
    """Rounds drawn independently with that standard deviation."""
    return Step(lambda draws: steps.independent(draws, sd))


def ar(phi: float, sd: float = SD) -> Step:
    """Rounds that depend on the one before by `phi`."""
    return Step(lambda draws: steps.autoregressive(draws, sd, phi))


def modes(dwell: float, slow: float = 1.2, share: float = 0.5) -> Step:
    """Rounds of two modes."""
    truth = steps.median_of_modes(slow, share)
    return Step(lambda draws: steps.modes(draws, dwell, slow=slow, share=share), truth)


def far(rounds: float, slow: float) -> float:
    """Rounds of two modes that last, on average, as long as so many of the fast one."""
    return 2 * rounds / (1 + slow)


def table(profile: str | None) -> Table:
    """The cases of a profile."""
    tenth = 50 if profile == "full" else 10
    kinds = {
        **{f"independent, sd {sd:.0%}": iid(sd) for sd in (0.01, 0.02, 0.05)},
        **{f"AR(1) φ = {phi}, sd 2%": ar(phi) for phi in (0.3, 0.5, 0.9, 0.98)},
        **{f"modes, {tenth / d:g} rounds": modes(tenth / d) for d in (1, 2.5, 5)},
        **{f"modes, {tenth / d:g} rounds, 30%": modes(tenth / d, share=0.3) for d in (1, 2.5)},
        **{
            f"modes of 1x and {x}x, {far(tenth, x):.2g} rounds": modes(far(tenth, x), x)
            for x in (2, 3)
        },
    }
    cases = {name: Case(step, profile) for name, step in kinds.items()}
    if profile is None:
        cases["steps of 50 ms: independent, sd 1%"] = Case(iid(0.01), profile, 0.05)
        cases["steps of 50 ms: AR(1) φ = 0.9, sd 1%"] = Case(ar(0.9, 0.01), profile, 0.05)
    title = f"`measure.profile={profile}`" if profile else "Without a profile"
    return Table(title, COLUMNS, cases)


def phi_of(rounds: float) -> float:
    """φ of an AR(1) process whose autocorrelation time is so many rounds."""
    return max(0.0, (rounds - 1) / (rounds + 1))


def lasting(name: str, part: int) -> dict[str, Fixed]:
    """Phases that last for that part of the rounds."""
    return {
        f"AR(1), {name}": Fixed(lambda rounds: ar(phi_of(rounds / part))),
        f"modes of 1x and 1.2x, {name}": Fixed(lambda rounds: modes(rounds / part)),
        f"1.2x for 30%, {name}": Fixed(lambda rounds: modes(rounds / part, share=0.3)),
        f"2x for 20%, {name}": Fixed(lambda rounds: modes(rounds / part, 2.0, 0.2)),
    }


FIXED = Table(
    "Phases of a part of the rounds, without the loop: right of those told",
    FIXED_COLUMNS,
    {
        "independent": Fixed(lambda _: iid(SD)),
        **{row: case for name, part in PHASES.items() for row, case in lasting(name, part).items()},
    },
)
BOUND_TABLES = [
    Table(
        "Narrow and wrong in `quick`, where so many independent rounds are enough to stop",
        BOUNDS,
        {
            f"modes, {dwell} rounds": Bound(
                Case(modes(dwell), "quick"), "_ENOUGH", {bound: int(bound) for bound in BOUNDS}
            )
            for dwell in (5, 10, 15)
        },
    ),
    Table(
        "Narrow and wrong without a profile, where few rounds may be spread so much",
        SPREADS,
        {
            f"modes of 1x and {x}x, {far(10, x):.2g} rounds": Bound(
                Case(modes(far(10, x), x), None),
                "_WIDE",
                dict(zip(SPREADS, (10.0, float("inf")), strict=True)),
            )
            for x in (2, 3)
        },
    ),
]


if __name__ == "__main__":
    tables = [*(table(profile) for profile in PROFILES), FIXED, *BOUND_TABLES]
    write("interval.md", INTRODUCTION, tables, lambda case: case.counted())
