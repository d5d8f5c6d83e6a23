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

# Last: the package may be that of another checkout, which PYTHONPATH names.
sys.path.append(str(Path(__file__).resolve().parents[2]))

from tests.support import virtual_steps as steps
from tools.evidence.pages import Table, write

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.virtual_steps import Course

RUNS = {None: 300, "quick": 300, "full": 120}
PROFILES = tuple(RUNS)
STEP_S = 0.002
COLUMNS = ("right", "half-width", "rounds", "`dependent`", "`not_converged`", "confident ±1 %")

INTRODUCTION = """# How often the interval of the median is right

Written by `python tools/evidence/interval.py --against=CHECKOUT`; in brackets what commit
`face785` told, when an interval took rounds as independent and ten quiet rounds were enough. Steps
of 2 ms on a virtual clock, the real loop: warm-up, looks, limits. 300 runs a row, 120 in `full`,
seeded.

*right*: of the intervals that are told (95 %), those that hold the true median. *half-width*:
their mean. *confident ±1 %*: told with a half-width of 1 % at most and no flag that puts the
number in doubt. AR(1) φ: normal noise of which a share φ stays from round to round. Modes: 1x and
1.2x, left at random after the given number of rounds on average; there is no median that could be
known to 1 %, and *right* tells how many intervals hold 1x. Steps of 50 ms have fewer than 100
rounds: their interval assumes independence, and has no `effective_rounds` beside it.
"""


@dataclass(frozen=True)
class Case:
    """A kind of step, under a profile."""

    course: Callable[[Random], Course]
    profile: str | None
    step_s: float = STEP_S


def iid(sd: float) -> Callable[[Random], Course]:
    """Independent rounds."""
    return lambda draws: steps.independent(draws, sd)


def ar(phi: float, sd: float) -> Callable[[Random], Course]:
    """Dependent rounds."""
    return lambda draws: steps.autoregressive(draws, sd, phi)


def modes(dwell: float) -> Callable[[Random], Course]:
    """Rounds of two modes."""
    return lambda draws: steps.modes(draws, dwell)


def table(profile: str | None) -> Table:
    """The cases of a profile."""
    tenth = 50 if profile == "full" else 10
    kinds = {
        **{f"independent, sd {sd:.0%}": iid(sd) for sd in (0.01, 0.02, 0.05)},
        **{f"AR(1) φ = {phi}, sd 2 %": ar(phi, 0.02) for phi in (0.3, 0.5, 0.9, 0.98)},
        "AR(1) φ = 0.9, sd 1 %": ar(0.9, 0.01),
        **{f"modes, {tenth / d:g} rounds": modes(tenth / d) for d in (1, 2.5, 5)},
    }
    cases = {name: Case(course, profile) for name, course in kinds.items()}
    if profile is None:
        cases["steps of 50 ms: independent, sd 1 %"] = Case(iid(0.01), profile, 0.05)
        cases["steps of 50 ms: AR(1) φ = 0.9, sd 1 %"] = Case(ar(0.9, 0.01), profile, 0.05)
    title = f"`measure.profile={profile}`" if profile else "Without a profile"
    return Table(title, COLUMNS, cases)


def counted(case: Case) -> dict[str, str]:
    """The cells of a row."""
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
        "confident ±1 %": f"{confident / runs:.1%}",
    }


if __name__ == "__main__":
    write("interval.md", INTRODUCTION, [table(profile) for profile in PROFILES], counted)
