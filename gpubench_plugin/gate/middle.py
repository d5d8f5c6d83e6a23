"""Several earlier runs as one: what ``--gate=threshold`` compares with when it is given a name."""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpubench_plugin.runs import Result, Run


def middle(runs: Sequence[Run], head: Run) -> Run:
    """The median of each metric of each benchmark over the `runs`, which are not none.

    Those that `head` can be compared with count, by machine and by settings; where there is none,
    the latest stands for all, and comparing will say what differs.
    """
    alike = [run for run in runs if run.machine == head.machine] or runs[-1:]
    ids = dict.fromkeys(node_id for run in alike for node_id in run.results)
    results = {
        node_id: _middle(
            [run.results[node_id] for run in alike if node_id in run.results],
            head.results.get(node_id),
        )
        for node_id in ids
    }
    return replace(alike[-1], results=results)


def _middle(results: Sequence[Result], head: Result | None) -> Result:
    measured = [result for result in results if result.outcome == "measured"]
    if not measured:
        return results[-1]
    same = [r for r in measured if head is not None and r.settings == head.settings]
    chosen = same or measured[-1:]
    names = dict.fromkeys(name for result in chosen for name in result.metrics)
    values = {name: median(_values(chosen, name)) for name in names}
    last = chosen[-1]
    return replace(
        last,
        metrics={
            name: replace(metric, value=values[name])
            for result in chosen
            for name, metric in result.metrics.items()
        },
        launches=(values,),
    )


def _values(results: Iterable[Result], name: str) -> list[float]:
    """Of each result one value, the median over its launches."""
    found = []
    for result in results:
        launches = [launch[name] for launch in result.launches if name in launch]
        if launches or name in result.metrics:
            found.append(median(launches) if launches else result.metrics[name].value)
    return found
