"""How true the percentiles of a sketch are, and what it costs to keep one.

    python tools/evidence/quantiles.py

*Accuracy*: for several distributions of a million durations, in several seeds, the largest rank
error of the percentiles 0.1 to 99.9 against all durations in order, as a share of the configured
one; beside it how far the 99th percentile itself is off. *Cost*: nanoseconds for each duration to
be kept in an array, as below the limit, and to be sketched in the batches of the loop; the median
over the turns. *Size*: as text in the journal. The exit code is 1 if a rank error is above the
configured one.
"""

from __future__ import annotations

import sys
from array import array
from statistics import median
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubench_plugin.core.records import Sketch
from gpubench_plugin.measure.sketch import Sketcher, size_for

if TYPE_CHECKING:
    from collections.abc import Callable

COUNT = 1_000_000
BATCH = 16_384
SEEDS = 5
TURNS = 7
RANK_ERRORS = (0.01, 0.001, 0.0001)
FRACTIONS = [n / 1000 for n in range(1, 1000)]

DISTRIBUTIONS: dict[str, Callable[[np.random.Generator], Any]] = {
    "normal, 2%": lambda random: random.normal(1e-3, 2e-5, COUNT),
    "log-normal": lambda random: random.lognormal(-7, 0.5, COUNT),
    "two levels, 7% slow": lambda random: np.where(
        random.random(COUNT) < 0.93, random.normal(1e-3, 1e-5, COUNT), 5e-3
    ),
    "Pareto 1.5": lambda random: 1e-3 * (1 + random.pareto(1.5, COUNT)),
    "rising": lambda random: np.linspace(1e-3, 2e-3, COUNT) * random.normal(1, 1e-3, COUNT),
}


def main() -> int:
    """Print the tables; 1 where a sketch breaks its promise."""
    worst = max(accuracy(rank_error) for rank_error in RANK_ERRORS)
    cost()
    return int(worst > 1)


def accuracy(rank_error: float) -> float:
    """The rows for one configured error; the largest share of it that was seen."""
    print(f"\nmeasure.sketch_rank_error={rank_error:g} (k = {size_for(rank_error)})")
    print(f"| {COUNT:,} durations | largest rank error / configured | 99th percentile off by |")
    print("| --- | --- | --- |")
    shares = []
    for name, draw in DISTRIBUTIONS.items():
        seen = [one(draw(np.random.default_rng(seed)), rank_error) for seed in range(SEEDS)]
        shares.append(max(share for share, _ in seen))
        off = max(off for _, off in seen)
        print(f"| {name} | {shares[-1]:.2f} | {off:.3%} |")
    return max(shares)


def one(values: Any, rank_error: float) -> tuple[float, float]:
    """The share of the configured rank error, and how far the 99th percentile is off."""
    sketch, ordered = sketched(values, rank_error), np.sort(values)
    found = np.array(sketch.quantiles(FRACTIONS))
    low = np.searchsorted(ordered, found, side="left") / COUNT
    high = np.searchsorted(ordered, found, side="right") / COUNT
    fractions = np.array(FRACTIONS)
    errors = np.maximum(0, np.maximum(low - fractions, fractions - high))
    exact = float(np.quantile(values, 0.99))
    return float(errors.max()) / rank_error, abs(sketch.quantiles([0.99])[0] / exact - 1)


def sketched(values: Any, rank_error: float) -> Sketch:
    """The sketch of `values`, in the batches of the loop."""
    sketcher = Sketcher(rank_error)
    for at in range(0, len(values), BATCH):
        sketcher.update(values[at : at + BATCH])
    return sketcher.sketch


def cost() -> None:
    """The table of nanoseconds and bytes."""
    values = array("d", np.random.default_rng(0).lognormal(-7, 0.5, COUNT))
    print("\n| kept as | ns per duration | bytes in the journal |")
    print("| --- | --- | --- |")
    text = sum(len(repr(value)) + 2 for value in values)
    print(f"| array, one by one | {per_value_ns(lambda: append(values)):.0f} | {text:,} |")
    print(f"| array, in batches | {per_value_ns(lambda: extend(values)):.0f} | {text:,} |")
    for rank_error in RANK_ERRORS:
        spent = per_value_ns(lambda error=rank_error: sketched(values, error))  # type: ignore[misc] # mypy infers no default
        size = len(sketched(values, rank_error).kll)
        print(f"| sketch, rank error {rank_error:g} | {spent:.0f} | {size:,} |")


def append(values: array[float]) -> None:
    """As a loop would keep them that appends each."""
    kept = array("d")
    for value in values:
        kept.append(value)


def extend(values: array[float]) -> None:
    """As the recording keeps them."""
    kept = array("d")
    for at in range(0, len(values), BATCH):
        kept.extend(values[at : at + BATCH])


def per_value_ns(act: Callable[[], object]) -> float:
    """Nanoseconds per duration of `act` on all of them."""
    times = []
    for _ in range(TURNS):
        start = perf_counter_ns()
        act()
        times.append(perf_counter_ns() - start)
    return median(times) / COUNT


if __name__ == "__main__":
    sys.exit(main())
