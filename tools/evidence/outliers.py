"""How often clean noise is said to have outliers: the page docs/evidence/outliers.md.

    python tools/evidence/outliers.py [--against=CHECKOUT]

With ``--against`` the numbers of another checkout stand in brackets. Takes half a minute.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

# Last: the package may be that of another checkout, which PYTHONPATH names.
sys.path.append(str(Path(__file__).resolve().parents[2]))

from gpubench_plugin.measure.recording import has_outliers
from tools.evidence.pages import Table, write

if TYPE_CHECKING:
    from collections.abc import Callable

COUNTS = (10, 12, 20, 50, 100, 200, 1000, 2000)
COLUMNS = tuple(f"n = {count}" for count in COUNTS)
DURATIONS = 200_000
"""Of each cell, in measurements of n each."""
MOST_RUNS = 4000

INTRODUCTION = """# How often `outliers` is raised

Written by `python tools/evidence/outliers.py --against=CHECKOUT`: the share of measurements of n
durations that are flagged; in brackets by commit `face785`, which looked at both sides, three
deviations away. Seeded.

Of normal noise at most 2% may be flagged, skewed noise is more often; a measurement with slow
calls should be. In the rows with a share of slow calls a measurement of few durations often has
none.
"""


@dataclass(frozen=True)
class Case:
    """A distribution of durations; whether only measurements count that have slow ones."""

    draw: Callable[[Random], float]
    only_with_slow: bool = False


def normal(sd: float) -> Callable[[Random], float]:
    """Normally distributed noise around one."""
    return lambda draws: draws.gauss(1.0, sd)


def floor(mean: float) -> Callable[[Random], float]:
    """A floor with an exponential tail."""
    return lambda draws: 1 + draws.expovariate(1 / mean)


def slow(share: float, times: float) -> Callable[[Random], float]:
    """A share of the calls is slower."""
    return lambda draws: times if draws.random() < share else draws.gauss(1.0, 0.02)


TABLES = [
    Table(
        "Noise without outliers",
        COLUMNS,
        {
            **{f"normal, sd {sd:.1%}": Case(normal(sd)) for sd in (0.005, 0.015, 0.02, 0.05)},
            "a floor and an exponential of 5%": Case(floor(0.05)),
        },
    ),
    Table(
        "Slow calls, where there are any",
        COLUMNS,
        {
            f"{share:.0%} take {times:g}x": Case(slow(share, times), only_with_slow=True)
            for share in (0.01, 0.02, 0.05)
            for times in (5, 10)
        },
    ),
]


def counted(case: Case) -> dict[str, str]:
    """The cells of a row."""
    return {column: flagged(case, count) for column, count in zip(COLUMNS, COUNTS, strict=True)}


def flagged(case: Case, count: int) -> str:
    """The share that is flagged of measurements of so many durations."""
    draws = Random(count)
    runs = min(MOST_RUNS, DURATIONS // count)
    drawn = [[case.draw(draws) for _ in range(count)] for _ in range(runs)]
    if case.only_with_slow:
        drawn = [durations for durations in drawn if max(durations) > 2]
    return f"{sum(map(has_outliers, drawn)) / len(drawn):.1%}"


if __name__ == "__main__":
    write("outliers.md", INTRODUCTION, TABLES, counted)
