"""How often the interval of a throughput covers the true rate: docs/evidence/rate_interval.md.

    python tools/evidence/rate_interval.py

Work goes on for a number of blocks of equal numbers of calls whose lengths are drawn. Beside the
interval that is reported stand two others: the same without batches, each block for itself, and
the interval of the median, which used to stand beside throughput. Takes two minutes.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import fmean
from typing import TYPE_CHECKING

# Last: the package may be that of another checkout, which PYTHONPATH names.
sys.path.append(str(Path(__file__).resolve().parents[2]))

from gpubench_plugin.core.records import Samples
from gpubench_plugin.core.student import t_quantile
from gpubench_plugin.measure.interval import median_interval
from gpubench_plugin.measure.metrics.throughput import log_rate_half_width
from tests.support import virtual_steps as steps
from tools.evidence.pages import Table, write

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.virtual_steps import Course

TRIALS = 2000
COUNTS = (20, 50, 100, 200, 400)
COLUMNS = (
    "ten batches",
    "half-width",
    "single blocks",
    "of the median",
)

INTRODUCTION = """# The interval of a throughput

Written by `python tools/evidence/rate_interval.py`: how often an interval of 95% covers the true
rate, in percent of 2,000 simulated runs, and its mean half-width. *Ten batches* is what is
reported, widened by what neighbouring ones have in common. *Single blocks* is the same without
batches, and *of the median* the interval that belongs to the step time, where it has one.
"""

CONCLUSION = """\
A median cannot tell the rate where lengths are skewed. Batches cover what depends on its
neighbours far better, and independent blocks as well. AR(1) blocks with φ = 0.9 resemble 19 of
their neighbours: twenty times as many must be seen. Stalls that hit one block in twenty need fifty
blocks before any interval can know of them.
"""


@dataclass(frozen=True)
class Case:
    """So many blocks of lengths whose mean is one: so is the true rate."""

    course: Callable[[Random], Course]
    count: int
    seed: str


def skewed(draws: Random) -> Course:
    """Most of them shorter than the mean."""
    return lambda _, __: math.exp(0.5 * draws.gauss() - 0.125)


def stalling(draws: Random) -> Course:
    """A few of them far longer than the others."""
    return lambda _, __: 11 / 1.5 if draws.random() < 0.05 else 1 / 1.5


LENGTHS: dict[str, Callable[[Random], Course]] = {
    "Normal, 5%": lambda draws: steps.independent(draws, 0.05),
    "Log-normal, 50%": skewed,
    "One in twenty takes 11 times as long": stalling,
    "AR(1), φ = 0.5, 5%": lambda draws: steps.autoregressive(draws, 0.05, 0.5),
    "AR(1), φ = 0.9, 5%": lambda draws: steps.autoregressive(draws, 0.05, 0.9),
}

TABLES = [
    Table(
        name,
        COLUMNS,
        {f"{count} blocks": Case(course, count, f"{name} {count}") for count in COUNTS},
    )
    for name, course in LENGTHS.items()
]


def counted(case: Case) -> dict[str, str]:
    """The cells of a row."""
    draws = Random(case.seed)
    batches = blocks = 0
    medians = []
    width = 0.0
    for _ in range(TRIALS):
        course = case.course(draws)
        lengths = [course(0.0, block) for block in range(case.count)]
        off = abs(math.log(math.fsum(lengths) / case.count))
        deviation = log_rate_half_width(samples(lengths), 0.95) or 0.0
        interval = median_interval(lengths)
        batches += off <= deviation
        blocks += off <= without_batches(lengths)
        if interval is not None:
            medians.append(interval.low <= 1 <= interval.high)
        width += deviation / TRIALS
    cells = (
        f"{batches / TRIALS:.1%}",
        f"{width:.1%}",
        f"{blocks / TRIALS:.1%}",
        f"{fmean(medians):.1%}",
    )
    return dict(zip(COLUMNS, cells, strict=True))


def samples(lengths: list[float]) -> Samples:
    """Blocks of ten calls each of those lengths in seconds."""
    return Samples(
        timer="simulated",
        durations_s=(0.1,),
        block_s=tuple(lengths),
        block_calls=(10,) * len(lengths),
        first_step_s=None,
        warmup_s=(),
        warmup_calls=0,
    )


def without_batches(lengths: list[float]) -> float:
    """The half-width of the usual interval of a mean, relative."""
    count = len(lengths)
    mean = math.fsum(lengths) / count
    variance = math.fsum((length - mean) ** 2 for length in lengths) / (count - 1)
    return t_quantile(0.95, count - 1) * math.sqrt(variance / count) / mean


if __name__ == "__main__":
    write("rate_interval.md", INTRODUCTION, TABLES, counted, CONCLUSION)
