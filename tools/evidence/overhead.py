"""What measuring a no-op costs and how wrong it is, here and in other harnesses, in one run.

    python tools/evidence/overhead.py

For every harness two numbers, in nanoseconds per call of the no-op:

*added*: the wall time that a call takes in the harness, its bookkeeping between the timed parts
included, less the true cost of the call;
*bias*: the median that the harness reports, less the true cost of the call.

The true cost is that of a call in a long row of calls without a loop around them. Harnesses take
turns; each number is the median over the turns. They go into ``docs/evidence/overhead.md``, which
is worth something if nothing else ran. The exit code is 1 if gpubench is over a budget: the loop,
in which a no-op's calls are grouped between two readings of the clock, or the clock that times
every call.
"""

from __future__ import annotations

import os
import platform
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter_ns
from typing import TYPE_CHECKING

import pytest
import torch

sys.path.append(str(Path(__file__).resolve().parents[2]))

from tools.evidence import pages

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_benchmark.fixture import BenchmarkFixture

TURNS = 9
CALLS = 10_000
UNROLLED = 2_000
TORCH_CALLS = 300


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Nanoseconds per call: of wall time, and as reported."""

    wall: float
    reported: float

    def within(self, budget: Cost) -> bool:
        """Whether neither is above the `budget`'s; an error is one in either direction."""
        return self.wall <= budget.wall and abs(self.reported) <= budget.reported


def noop() -> None:
    """The step of which nothing is to be seen but its call."""


def true_cost_ns() -> float:
    """A call's nanoseconds in a row of calls."""
    namespace: dict[str, Callable[[Callable[[], None]], None]] = {}
    exec("def row(step):\n" + "    step()\n" * UNROLLED, namespace)  # a row, not a loop
    row = namespace["row"]
    times = []
    for _ in range(5):
        start = perf_counter_ns()
        row(noop)
        times.append(perf_counter_ns() - start)
    return median(times) / UNROLLED


def gpubench_loop(_: pytest.FixtureRequest) -> Cost:
    """The whole loop, as a benchmark runs it; wall time counts from the end of the warm-up."""
    from gpubench_plugin.config.sections import MeasureSection
    from gpubench_plugin.measure.clocks.base import Task
    from gpubench_plugin.measure.clocks.host import CpuClock
    from gpubench_plugin.measure.loop import Variant, measure
    from gpubench_plugin.measure.probes.interference import Contention
    from gpubench_plugin.measure.probes.memory import MemoryGrowth
    from gpubench_plugin.ranks.agreement import RankAgreement

    start: list[int] = []
    growth = MemoryGrowth(torch.device("cpu"))
    samples = measure(
        [Variant(task=Task(step=noop), clock=CpuClock())],
        section=MeasureSection(by="time", time_s=0.1),
        agreement=RankAgreement(),
        make_contention=Contention,
        on_timed=lambda: start.append(perf_counter_ns()),
        on_progress=lambda *_: growth.block_ended(),
    )[0]
    wall = perf_counter_ns() - start[0]
    return Cost(wall=wall / samples.calls, reported=median(samples.durations_s) * 1e9)


def gpubench_each(_: pytest.FixtureRequest) -> Cost:
    """The clock of the CPU made to time every call, which it does from 5 µs on."""
    from gpubench_plugin.measure.clocks.base import Task
    from gpubench_plugin.measure.clocks.host import CpuClock

    clock, task = CpuClock(), Task(step=noop)
    start = perf_counter_ns()
    block = clock.block(task, durations=CALLS)
    wall = perf_counter_ns() - start
    return Cost(wall=wall / CALLS, reported=median(block.durations_s) * 1e9)


def benchmark_pedantic(request: pytest.FixtureRequest) -> Cost:
    """pytest-benchmark, a round for every call."""
    benchmark: BenchmarkFixture = request.getfixturevalue("benchmark")
    start = perf_counter_ns()
    benchmark.pedantic(noop, rounds=CALLS, iterations=1)
    wall = perf_counter_ns() - start
    return Cost(wall=wall / CALLS, reported=benchmark.stats.stats.median * 1e9)


def benchmark_default(request: pytest.FixtureRequest) -> Cost:
    """pytest-benchmark as it comes: it chooses the calls per round; its wall time includes that."""
    benchmark: BenchmarkFixture = request.getfixturevalue("benchmark")
    start = perf_counter_ns()
    benchmark(noop)
    wall = perf_counter_ns() - start
    calls = benchmark.stats.stats.rounds * benchmark.stats.iterations
    return Cost(wall=wall / calls, reported=benchmark.stats.stats.median * 1e9)


def torch_timeit(_request: pytest.FixtureRequest) -> Cost:
    """The timer of torch, asked for one call at a time."""
    from torch.utils.benchmark import Timer

    timer = Timer("step()", globals={"step": noop})
    start = perf_counter_ns()
    reported = [timer.timeit(1).median for _ in range(TORCH_CALLS)]
    wall = perf_counter_ns() - start
    return Cost(wall=wall / TORCH_CALLS, reported=median(reported) * 1e9)


HARNESSES: dict[str, Callable[[pytest.FixtureRequest], Cost]] = {
    "gpubench, the loop (calls in groups)": gpubench_loop,
    "gpubench, every call timed": gpubench_each,
    "pytest-benchmark, pedantic(iterations=1)": benchmark_pedantic,
    "pytest-benchmark, default": benchmark_default,
    "torch.utils.benchmark, timeit(1)": torch_timeit,
}


BUDGETS = {
    "gpubench, the loop (calls in groups)": Cost(wall=20, reported=5),
    "gpubench, every call timed": Cost(wall=150, reported=60),
}


class Table:
    """Collects each turn's excess over the true cost; a plugin that hands itself to the tests."""

    def __init__(self) -> None:
        self._true: list[float] = []
        self._excess: dict[str, list[Cost]] = defaultdict(list)

    @pytest.fixture
    def table(self) -> Table:
        """The table to which each test adds its costs."""
        return self

    def add(self, harness: str, cost: Cost) -> None:
        """Add one turn of a harness, compared with the true cost at this moment."""
        true = true_cost_ns()
        self._true.append(true)
        excess = Cost(wall=cost.wall - true, reported=cost.reported - true)
        self._excess[harness].append(excess)

    def excess(self, harness: str) -> Cost:
        """The medians over the turns."""
        turns = self._excess[harness]
        return Cost(
            wall=median(turn.wall for turn in turns),
            reported=median(turn.reported for turn in turns),
        )

    @property
    def true_ns(self) -> float:
        """What a call costs, the median of all turns."""
        return median(self._true)

    def __str__(self) -> str:
        return pages.markdown(
            ("", "added", "bias", "budget"),
            [(name, *_cells(self.excess(name), BUDGETS.get(name))) for name in HARNESSES],
        )


def _cells(cost: Cost, budget: Cost | None) -> tuple[str, str, str]:
    """Added, bias and the budget of a harness, in nanoseconds."""
    limits = f"{budget.wall:g} ns, {budget.reported:g} ns" if budget else ""
    return f"{cost.wall:.1f} ns", f"{cost.reported:.1f} ns", limits


@pytest.mark.parametrize("harness", HARNESSES)
@pytest.mark.parametrize("turn", range(TURNS))
def test_harness(harness: str, turn: int, table: Table, request: pytest.FixtureRequest) -> None:
    """One turn of one harness."""
    table.add(harness, HARNESSES[harness](request))


def main() -> int:
    """Take the turns, print the table, and say whether the budget holds."""
    table = Table()
    options = ["-q", "--no-header", "--no-summary", "--noconftest", "-c", os.devnull]
    plugins = ["-p", "no:gpubench", "-p", "no:cacheprovider", "--benchmark-quiet"]
    failed = pytest.main([*options, *plugins, __file__], plugins=[table])
    if failed:
        return int(failed)
    pages.save(
        "overhead.md",
        "# What measuring a no-op costs\n\n"
        "Written by `python tools/evidence/overhead.py`: what a call takes beyond its true cost of "
        f"{table.true_ns:.1f} ns\n(*added*), and what is reported beyond it (*bias*). "
        f"Python {platform.python_version()}, {platform.machine()}.\n",
        str(table),
    )
    over = [name for name, budget in BUDGETS.items() if not table.excess(name).within(budget)]
    for name in over:
        sys.stdout.write(f"over its budget: {name}\n")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
