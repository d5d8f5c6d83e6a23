"""How often the interval of a throughput covers the true rate, where blocks are simulated.

    python tools/evidence/rate_interval.py [--trials 2000]

Work goes on for a number of blocks of equal numbers of calls whose lengths are drawn. Beside the
interval that is reported stand two others: the same without batches, each block for itself, and
the interval of the median, which used to stand beside throughput. It writes the table into
``docs/evidence/rate_interval.md``.
"""

from __future__ import annotations

import argparse
import math
import random
from pathlib import Path
from typing import TYPE_CHECKING

from gpubench_plugin.measure import median_interval
from gpubench_plugin.measure.metrics import deviation_of_rate
from gpubench_plugin.measure.student import t_quantile
from gpubench_plugin.records import Samples

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = Path(__file__).parents[2] / "docs" / "evidence" / "rate_interval.md"
HEAD = """# The interval of a throughput

How often an interval of 95 % covers the true rate, in percent of the simulated runs, and its mean
half-width. *Ten batches* is what is reported, *single blocks* is the same without batches, and
*of the median* is the interval that belongs to the step time. Written by
`python tools/evidence/rate_interval.py`.

| blocks | lengths of blocks | ten batches | half-width | single blocks | of the median |
|---:|---|---:|---:|---:|---:|
"""
TAIL = """
A median cannot tell the rate where lengths are skewed. Batches cover what depends on its
neighbours far better, and independent blocks as well. Stalls that hit one block in twenty need
fifty blocks before any interval can know of them.
"""


def independent(chance: random.Random, count: int) -> list[float]:
    """Blocks that know nothing of each other."""
    return [1 + 0.05 * chance.gauss(0, 1) for _ in range(count)]


def skewed(chance: random.Random, count: int) -> list[float]:
    """Most of them shorter than the mean."""
    return [math.exp(0.5 * chance.gauss(0, 1) - 0.125) for _ in range(count)]


def stalling(chance: random.Random, count: int) -> list[float]:
    """A few of them far longer than the others."""
    return [11 / 1.5 if chance.random() < 0.05 else 1 / 1.5 for _ in range(count)]


def dependent(persistence: float) -> Callable[[random.Random, int], list[float]]:
    """Each of them like the one before."""

    def draw(chance: random.Random, count: int) -> list[float]:
        state, lengths = chance.gauss(0, 1), []
        for _ in range(count):
            state = persistence * state + chance.gauss(0, math.sqrt(1 - persistence**2))
            lengths.append(1 + 0.05 * state)
        return lengths

    return draw


LENGTHS: dict[str, Callable[[random.Random, int], list[float]]] = {
    "normal, 5 %": independent,
    "log-normal, 50 %": skewed,
    "one in twenty takes 11 times as long": stalling,
    "AR(1), φ = 0.5, 5 %": dependent(0.5),
    "AR(1), φ = 0.9, 5 %": dependent(0.9),
}
"""The mean of each is one: so is the true rate."""


def main() -> int:
    """Simulate, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=2000)
    trials = parser.parse_args().trials
    rows = [row(count, name, trials) for name in LENGTHS for count in (20, 50, 100, 200)]
    PAGE.write_text(HEAD + "".join(rows) + TAIL, encoding="utf-8")
    print("".join(rows), end="")
    return 0


def row(count: int, name: str, trials: int) -> str:
    """One row of the table."""
    chance = random.Random(f"{name} {count}")
    batches = blocks = medians = 0
    width = 0.0
    for _ in range(trials):
        lengths = LENGTHS[name](chance, count)
        off = abs(math.log(math.fsum(lengths) / count))
        deviation = deviation_of_rate(samples(lengths), 0.95) or 0.0
        interval = median_interval(lengths)
        batches += off <= deviation
        blocks += off <= without_batches(lengths)
        medians += interval is not None and interval.low <= 1 <= interval.high
        width += deviation / trials
    covered = [f"{share / trials:.1%}" for share in (batches, blocks, medians)]
    return f"| {count} | {name} | {covered[0]} | {width:.1%} | {covered[1]} | {covered[2]} |\n"


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
    raise SystemExit(main())
