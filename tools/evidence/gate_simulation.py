"""Prints the tables of docs/reference/gate.md: each kind of gate on suites whose truth is known.

    python tools/evidence/gate_simulation.py

Takes about a minute. The draws are seeded: the numbers are the same each time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

from gpubench_plugin.compare import Floats
from tests.support import simulation as sim
from tests.support.replay import Recording

SUITES = 5_000
SILENT_SUITES = 40_000
"""For the false alarms of the paired gate, which are rare."""
DEAR_SUITES = 500
"""For tests on whole processes of samples."""

Judge = Callable[[float, int], sim.Kinds]
"""Of an effect and a number of suites, with draws of its own."""


def main() -> None:
    """Both tables, as markdown."""
    print("Simulated, by the noise between launches:\n")
    heading("noise")
    for name, judge in SIMULATED.items():
        for noise in sim.NOISES:
            print(row(name, f"{noise:.1%}", partial(judge, noise)))
    print("\nReplayed, by recorded benchmark:\n")
    heading("benchmark (noise)")
    for name, replayed in REPLAYED.items():
        for benchmark in Recording.names():
            recording = Recording(benchmark)
            noise = recording.draw(0)(500, 10)[:, 0].std()
            print(row(name, f"{benchmark} ({noise:.1%})", partial(replayed, recording)))


def heading(what: str) -> None:
    """The head of a table."""
    effects = " | ".join(f"{effect:.0%} caught" for effect in sim.EFFECTS[1:])
    print(f"| gate | {what} | false alarms | 0% unchanged | {effects} | 5% unchanged |")
    print("|---|---|" + "---:|" * (3 + len(sim.EFFECTS[1:])))


def row(name: str, what: str, judge: Judge) -> str:
    """One line of a table."""
    dear = name.startswith("Mann")
    silent = SILENT_SUITES if name.startswith("paired") else SUITES
    none = sim.rates(judge(0.0, DEAR_SUITES if dear else silent), 0.0)
    seen = {
        effect: sim.rates(judge(effect, DEAR_SUITES if dear else SUITES), effect)
        for effect in sim.EFFECTS[1:]
    }
    cells: Iterable[str] = (
        share(none.alarms, 2),
        share(none.cleared),
        *(share(one.caught) for one in seen.values()),
        share(seen[0.05].cleared),
    )
    return f"| {name} | {what} | {' | '.join(cells)} |"


def share(number: float, digits: int = 1) -> str:
    """A share as a percentage."""
    return f"{100 * number:.{digits}f}%"


def medians_of_three(draw: sim.Draw) -> sim.Draw:
    """Runs of three launches each, which count as their median."""

    def drawn(suites: int, runs: int) -> Floats:
        launches = draw(suites, 3 * runs).reshape(suites, sim.BENCHMARKS, runs, 3)
        return np.median(launches, axis=-1)

    return drawn


SIMULATED: dict[str, Callable[[float, float, int], sim.Kinds]] = {
    "paired": lambda s, e, n: sim.by_pairs(sim.normal(s, 7), e, n),
    "history, 10 runs": lambda s, e, n: sim.by_history(sim.normal(s, 7), e, n),
    "history, 20 runs": lambda s, e, n: sim.by_history(sim.normal(s, 7), e, n, 20),
    "history, 1 pinned of 20": lambda s, e, n: sim.by_history(sim.normal(s, 7), e, n, 20, pinned=1),
    "threshold 2%": lambda s, e, n: sim.by_threshold(sim.normal(s, 7), e, n),
    "median:5%": lambda s, e, n: sim.by_median(sim.processes(s, 7), e, n),
    "Mann-Whitney": lambda s, e, n: sim.by_mann_whitney(sim.processes(s, 7), e, n),
}

REPLAYED: dict[str, Callable[[Recording, float, int], sim.Kinds]] = {
    "paired": lambda r, e, n: sim.by_pairs(r.draw(7), e, n),
    "paired, neighbours": lambda r, e, n: (
        sim.sequential(sim.slower(r.neighbours(7, n, 15), e)).kinds
    ),
    "history, 10 runs": lambda r, e, n: sim.by_history(r.draw(7), e, n),
    "history, 1 pinned of 20": lambda r, e, n: sim.by_history(r.draw(7), e, n, 20, pinned=1),
    "history, 10 runs of 3 launches": lambda r, e, n: sim.by_history(
        medians_of_three(r.draw(7)), e, n
    ),
    "threshold 2%": lambda r, e, n: sim.by_threshold(r.draw(7), e, n),
    "median:5%": lambda r, e, n: sim.by_median(r.sample(7), e, n),
    "Mann-Whitney": lambda r, e, n: sim.by_mann_whitney(r.sample(7), e, n),
}


if __name__ == "__main__":
    main()
