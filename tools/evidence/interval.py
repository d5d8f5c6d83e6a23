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

RUNS = {None: 300, "quick": 300, "full": 120}
PROFILES = tuple(RUNS)
STEP_S = 0.002
BOUNDS = ("20", "30", "50")
SPREADS = ("ten half-widths", "no bound")
COLUMNS = ("right", "half-width", "rounds", "`dependent`", "`not_converged`", "confident ±1%")

INTRODUCTION = """# How often the interval of the median is right

Written by `python tools/evidence/interval.py --against=CHECKOUT`; in brackets what commit
`face785` told, when an interval took rounds as independent and ten quiet rounds were enough. Steps
of 2 ms on a virtual clock, the real loop: warm-up, looks, limits. 300 runs a row, 120 in `full`,
seeded.

*right*: of the intervals that are told (95%), those that hold the true median. *half-width*: their
mean. *confident ±1%*: told with a half-width of 1% at most and no flag that puts the number in
doubt. AR(1) φ: normal noise of which a share φ stays from round to round. Modes: 1x and 1.2x, left
at random after the given number of rounds on average; no median could be known to 1%, and
*right* tells how many intervals hold 1x. Modes of 1x and 2x, and of 1x and 3x, last for a tenth of
the least measuring time; so do those of the first row of modes, nearly. Fewer than 100 of such long
rounds fill that time. While the middle 80% of them span more than ten times the half-width that is
aimed at, measuring goes on; the last table tells why. Steps of 50 ms have fewer than 100 rounds:
their interval assumes independence, and has no `effective_rounds` beside it.

Three bounds rest on the last tables: rounds below which dependence may go unseen (100), of which
the first has the interval of a fixed number of AR(1) rounds, and independent rounds below which a
step is `dependent` (50), of which the second tells how often modes are confident where it is
another; and the spread beyond which fewer than 100 rounds are measured on, of which the third tells
the same where there is none.
"""


@dataclass(frozen=True)
class Case:
    """A kind of step, under a profile."""

    course: Callable[[Random], Course]
    profile: str | None
    step_s: float = STEP_S

    def counted(self) -> dict[str, str]:
        """The cells of its row."""
        return told_of(self)


@dataclass(frozen=True)
class Few:
    """A number of AR(1) rounds, without a loop."""

    rounds: int
    phi: float = 0.9
    runs: int = 2000

    def counted(self) -> dict[str, str]:
        """How often there is an interval, and how often that holds the median."""
        right = []
        for seed in range(self.runs):
            course = steps.autoregressive(Random(seed), 0.02, self.phi)
            found = median_interval([course(0.0, number) for number in range(self.rounds)])
            if found is not None:
                right.append(found.low <= 1.0 <= found.high)
        return {"right": f"{fmean(right):.0%}", "told": f"{len(right) / self.runs:.0%}"}


@dataclass(frozen=True)
class Bounds:
    """Two modes, in `quick`, where other numbers of independent rounds are enough."""

    dwell: float

    def counted(self) -> dict[str, str]:
        """For each bound, how often a half-width of 1% is told without a doubt."""
        return dict(zip(BOUNDS, map(self._confident, BOUNDS), strict=True))

    def _confident(self, bound: str) -> str:
        with patch.object(interval, "FEWEST_EFFECTIVE", int(bound), create=True):
            seeds = map(Random, range(RUNS["quick"]))
            samples = (
                steps.measured(steps.modes(draws, self.dwell), step_s=STEP_S, profile="quick")
                for draws in seeds
            )
            return f"{fmean(map(steps.confident, samples)):.1%}"


@dataclass(frozen=True)
class Spreads:
    """Two modes far apart, without a profile, where few rounds may be spread so much."""

    slow: float

    def counted(self) -> dict[str, str]:
        """How often a half-width of 1% is told without a doubt: with the bound, and with none."""
        return {
            column: self._confident(bound)
            for column, bound in zip(SPREADS, ("10", "inf"), strict=True)
        }

    def _confident(self, bound: str) -> str:
        case = Case(modes(far(10, self.slow), self.slow), None)
        with patch.object(interval, "_WIDE", float(bound), create=True):
            return told_of(case)["confident ±1%"]


def iid(sd: float) -> Callable[[Random], Course]:
    """Rounds drawn independently with that standard deviation."""
    return lambda draws: steps.independent(draws, sd)


def ar(phi: float, sd: float) -> Callable[[Random], Course]:
    """Rounds that depend on the one before by `phi`."""
    return lambda draws: steps.autoregressive(draws, sd, phi)


def modes(dwell: float, slow: float = 1.2) -> Callable[[Random], Course]:
    """Rounds of two modes."""
    return lambda draws: steps.modes(draws, dwell, slow=slow)


def far(rounds: float, slow: float) -> float:
    """Rounds of two modes that last, on average, as long as so many of the fast one."""
    return 2 * rounds / (1 + slow)


def table(profile: str | None) -> Table:
    """The cases of a profile."""
    tenth = 50 if profile == "full" else 10
    kinds = {
        **{f"independent, sd {sd:.0%}": iid(sd) for sd in (0.01, 0.02, 0.05)},
        **{f"AR(1) φ = {phi}, sd 2%": ar(phi, 0.02) for phi in (0.3, 0.5, 0.9, 0.98)},
        "AR(1) φ = 0.9, sd 1%": ar(0.9, 0.01),
        **{f"modes, {tenth / d:g} rounds": modes(tenth / d) for d in (1, 2.5, 5)},
        **{
            f"modes of 1x and {x}x, {far(tenth, x):.2g} rounds": modes(far(tenth, x), x)
            for x in (2, 3)
        },
    }
    cases = {name: Case(course, profile) for name, course in kinds.items()}
    if profile is None:
        cases["steps of 50 ms: independent, sd 1%"] = Case(iid(0.01), profile, 0.05)
        cases["steps of 50 ms: AR(1) φ = 0.9, sd 1%"] = Case(ar(0.9, 0.01), profile, 0.05)
    title = f"`measure.profile={profile}`" if profile else "Without a profile"
    return Table(title, COLUMNS, cases)


BOUND_TABLES = [
    Table(
        "AR(1) φ = 0.9, a fixed number of rounds",
        ("right", "told"),
        {f"{rounds} rounds": Few(rounds) for rounds in (30, 50, 70, 100, 200)},
    ),
    Table(
        "Confident ±1% in `quick`, where so many independent rounds are enough",
        BOUNDS,
        {f"modes, {dwell} rounds": Bounds(dwell) for dwell in (10, 15, 20)},
    ),
    Table(
        "Confident ±1% without a profile, where few rounds may be spread so much",
        SPREADS,
        {f"modes of 1x and {x}x, {far(10, x):.2g} rounds": Spreads(x) for x in (2, 3)},
    ),
]


def told_of(case: Case) -> dict[str, str]:
    """What the loop tells of many runs."""
    right, widths, rounds = [], [], []
    flags = {"dependent": 0, "not_converged": 0}
    confident = 0
    runs = RUNS[case.profile]
    for seed in range(runs):
        samples = steps.measured(
            case.course(Random(seed)), step_s=case.step_s, profile=case.profile
        )
        rounds.append(samples.rounds)
        confident += steps.confident(samples)
        for flag in flags:
            flags[flag] += flag in samples.flags
        if (ends := steps.told(samples)) is not None:
            right.append(ends[0] <= case.step_s <= ends[2])
            widths.append((ends[2] - ends[0]) / 2 / ends[1])
    missing = 1 - len(right) / runs
    told = f", none told {missing:.0%}" if missing >= 0.005 else ""
    return {
        "right": f"{fmean(right):.0%}{told}" if right else "none told",
        "half-width": f"{fmean(widths):.2%}" if widths else "",
        "rounds": f"{fmean(rounds):.0f}",
        "`dependent`": f"{flags['dependent'] / runs:.0%}",
        "`not_converged`": f"{flags['not_converged'] / runs:.0%}",
        "confident ±1%": f"{confident / runs:.1%}",
    }


if __name__ == "__main__":
    tables = [*(table(profile) for profile in PROFILES), *BOUND_TABLES]
    write("interval.md", INTRODUCTION, tables, lambda case: case.counted())
