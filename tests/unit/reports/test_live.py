"""What the line about running benchmarks says."""

from __future__ import annotations

from gpubench_plugin.reports.live import current_line
from gpubench_plugin.results.progress import RunProgress


def running(count: int) -> RunProgress:
    """A run with so many benchmarks, each of which is measured on a node of its own."""
    ids = tuple(f"test_it.py::test_{n}" for n in range(count))
    run = RunProgress(run_id="", ids=ids)
    for n, benchmark in enumerate(ids):
        for phase in ("build", "measure"):
            event = {"event": "phase", "phase": phase, "benchmark": benchmark, "node": f"node{n}"}
            run.add(event)
    return run


def test_line_names_who_runs_where() -> None:
    """Each benchmark with its node and phase."""
    line = current_line(running(2))
    assert line == "[1/2] node0: test_0 measure | node1: test_1 measure"


def test_line_names_a_few_of_many_nodes() -> None:
    """It is made for each event, and a terminal has no more room."""
    line = current_line(running(200))
    assert line.count("node") == 6
    assert line.endswith(" | 194 more")
