"""What is told of steps that change while they are measured: the page docs/evidence/steadiness.md.

    python tools/evidence/steadiness.py [--against=CHECKOUT]

The real loop on a clock that only the step moves. With ``--against`` the numbers of another
checkout stand in brackets. Takes a minute or two.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from statistics import fmean, median
from typing import TYPE_CHECKING

# Last: the package may be that of another checkout, which PYTHONPATH names.
sys.path.append(str(Path(__file__).resolve().parents[2]))

from gpubench_plugin.core.quality_flags import doubtful_flags
from tests.support import virtual_steps as steps
from tools.evidence.pages import Table, write

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.virtual_steps import Course

RUNS = 20
NOISE_RUNS = {None: 300, "quick": 300, "full": 60}
NOISE = 0.005
RIGHT = 0.02
PROFILES = ("quick", None, "full")
DOUBTS = ("unsteady", "drifting", "dependent")
CHANGES = tuple(f"`{name}`" if name else "no profile" for name in PROFILES)
RATES = (*(f"`{flag}`" for flag in (*DOUBTS, "outliers")), "warm-up")

INTRODUCTION = """# Steps that change while they are measured

Written by `python tools/evidence/steadiness.py --against=CHECKOUT`; in brackets what commit
`f2007b9c` told, which went on to the limit of time where there was no interval. The real loop on
a virtual clock, noise of 0.5% on the steps of the first tables. `full` measures a second, where
`quick` and the defaults measure 0.2 s: what changes only after 0.3 s is beyond these.

The first table gives the median of 20 runs, relative to the step's steady time; of a leak, which
has none, to the time of its first call. Then the share of runs that are right (within 2%, or by an
interval that holds the steady time) or in doubt, and the doubts of most.

Phases of the machine are no trend: noise of 2% that stays for a part of the time that is measured
moves the ends apart. What it does to the interval is in [the interval](interval.md).
"""


@dataclass(frozen=True)
class Case:
    """A step, and what it takes when steady."""

    course: Callable[[Random], Course]
    step_s: float
    truth: float = 1.0


@dataclass(frozen=True)
class Noise:
    """A stationary step under a profile."""

    course: Callable[[Random], Course]
    profile: str | None
    step_s: float = 0.002


def fixed(course: Course) -> Callable[[Random], Course]:
    """The step with a little noise."""
    return lambda draws: steps.noisy(course, draws, NOISE)


def bare(course: Course) -> Callable[[Random], Course]:
    """The step as it is."""
    return lambda _: course


LEAK = 0.0
CASES = {
    "decays from 2x, time constant 1 s, 2 ms": Case(fixed(steps.decaying(2, 1.0)), 0.002),
    "the same, 0.5 ms": Case(fixed(steps.decaying(2, 1.0)), 0.0005),
    "decays from 2x, 0.3 s, 200 µs": Case(fixed(steps.decaying(2, 0.3)), 0.0002),
    "decays from 1.2x, 0.1 s, 2 ms": Case(fixed(steps.decaying(1.2, 0.1)), 0.002),
    "first 50 calls 2x, 2 ms": Case(fixed(steps.slow_calls(50)), 0.002),
    "first 600 calls 2x, 0.5 ms": Case(fixed(steps.slow_calls(600)), 0.0005),
    "+0.1% with each call, 2 ms": Case(fixed(steps.leaking(0.001)), 0.002, LEAK),
    "+0.1% with each call, 0.5 ms": Case(fixed(steps.leaking(0.001)), 0.0005, LEAK),
    "1.2x slower after 0.5 s, 2 ms": Case(fixed(steps.throttling(0.5)), 0.002),
}


def stationary(profile: str | None) -> Table:
    """Steps that do not change, of which none may be said that they do."""
    kinds: dict[str, Noise] = {
        f"alternates 1x, 2x, {step_s * 1000:g} ms": Noise(
            bare(steps.alternating(1, 2)), profile, step_s
        )
        for step_s in (0.002, 0.02)
    }
    kinds |= {
        f"independent noise, sd {sd:.1%}": Noise(partial(steps.independent, sd=sd), profile)
        for sd in (0.005, 0.02, 0.05)
    }
    kinds["independent noise, sd 2.0%, 20 ms"] = Noise(
        partial(steps.independent, sd=0.02), profile, 0.02
    )
    kinds |= {
        f"levels, sd 2%, {rounds} rounds": Noise(
            partial(steps.levels, sd=0.02, dwell=rounds), profile
        )
        for rounds in (10, 50)
    }
    kinds |= {
        f"AR(1) φ = {phi}, sd 2%": Noise(partial(steps.autoregressive, sd=0.02, phi=phi), profile)
        for phi in (0.5, 0.9)
    }
    title = "Steps that do not change: how often they are flagged"
    return Table(f"{title}, {f'`{profile}`' if profile else 'no profile'}", RATES, kinds)


def counted(case: Case | Noise) -> dict[str, str]:
    """The cells of a row."""
    return rates(case) if isinstance(case, Noise) else changes(case)


def changes(case: Case) -> dict[str, str]:
    """The cells of a step that changes."""
    return {
        column: change(case, profile) for column, profile in zip(CHANGES, PROFILES, strict=True)
    }


def change(case: Case, profile: str | None) -> str:
    """What is told of a step that changes."""
    medians, flags, fine = [], Counter[str](), 0
    for seed in range(RUNS):
        samples = steps.measured(case.course(Random(seed)), step_s=case.step_s, profile=profile)
        medians.append(median(samples.rounds_s) / case.step_s)
        doubts = doubtful_flags(samples.flags)
        flags.update(doubts)
        ends = steps.told(samples)
        is_told = ends is not None and ends[0] <= case.truth * case.step_s <= ends[2]
        fine += bool(doubts) or is_told or abs(medians[-1] - case.truth) <= RIGHT
    usual = [f"`{flag}`" for flag in flags if flags[flag] > RUNS / 2]
    return ", ".join([f"{median(medians):.2f}", f"{fine / RUNS:.0%}", *usual])


def rates(case: Noise) -> dict[str, str]:
    """The cells of a step that does not."""
    flags, warmup_s = Counter[str](), []
    runs = NOISE_RUNS[case.profile]
    for seed in range(runs):
        samples = steps.measured(
            case.course(Random(seed)), step_s=case.step_s, profile=case.profile
        )
        flags.update(samples.flags)
        warmup_s.append(sum(samples.warmup_s))
    cells = {f"`{flag}`": f"{flags[flag] / runs:.1%}" for flag in (*DOUBTS, "outliers")}
    return {**cells, "warm-up": f"{fmean(warmup_s):.2f} s"}


if __name__ == "__main__":
    tables = [Table("Steps that change", CHANGES, CASES), *map(stationary, PROFILES)]
    write("steadiness.md", INTRODUCTION, tables, counted)
