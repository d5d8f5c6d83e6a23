"""Pictures of a run below its table in a notebook."""

from __future__ import annotations

from html import escape
from itertools import groupby
from typing import Final

from gpubench_plugin.core.records import RunRecord
from gpubench_plugin.reports.html import charts
from gpubench_plugin.reports.html.svg import svg
from gpubench_plugin.reports.names import short_names
from gpubench_plugin.results.progress import curves_of

_MOST: Final = 12


def figures(record: RunRecord) -> str:
    """HTML of pictures to unfold: of each benchmark, at most twelve, and of the scaling."""
    names = short_names(benchmark.id for benchmark in record.benchmarks).by_id
    by_benchmark = groupby(curves_of(record.events), key=lambda curve: curve.benchmark)
    curves = {benchmark: [*own] for benchmark, own in by_benchmark}
    pictures = {
        names[one.id]: [
            *filter(None, (charts.rounds_chart(one), charts.ranks_chart(one))),
            *charts.curve_charts({"head": curves.get(one.id, ())}),
        ]
        for one in record.benchmarks
    }
    drawn = [(name, own) for name, own in pictures.items() if own]
    shown = [*drawn[:_MOST], ("scaling", [*charts.scaling_charts(record.benchmarks)])]
    hidden = f"<p>pictures of {_MOST} of {len(drawn)} benchmarks</p>" * (len(drawn) > _MOST)
    return hidden + "".join(
        f"<details><summary>{escape(name)}</summary>{svg(own, name)}</details>"
        for name, own in shown
        if own
    )
