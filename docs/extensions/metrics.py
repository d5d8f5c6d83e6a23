"""The metrics, from their sources: meanings as declared, units and directions as computed."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from itertools import groupby

from docs.extensions.markdown import prose, table
from gpubench_plugin.core import catalog
from gpubench_plugin.measure.metrics.base import MetricSource
from tests.support.observations import everything


def metrics() -> str:
    """A table for each source, by the modules' subjects."""
    return "\n".join(_subjects())


def _subjects() -> Iterator[str]:
    sources = [catalog.load("metrics", name) for name in catalog.choices("metrics")]
    shipped = [source for source in sources if source.__module__.startswith("gpubench_plugin.")]
    # What every benchmark has comes first.
    shipped.sort(
        key=lambda source: (not source.__module__.endswith("step_time"), source.__module__)
    )
    for module, group in groupby(shipped, key=lambda source: source.__module__):
        order = [*vars(import_module(module)).values()]
        title = module.rpartition(".")[2].replace("_", " ")
        yield f"### {title.capitalize() if len(title) > 3 else title.upper()}\n"
        yield from map(_source, sorted(group, key=order.index))


def _source(source: MetricSource) -> str:
    computed = {metric.name: metric for metric in source(everything())}
    rows = (
        (f"`{name}`", computed[name].unit, computed[name].better, meaning)
        for name, meaning in source.produces.items()
    )
    where = "" if source.where == "everywhere" else f"*Where: {source.where}.* "
    return f"{where}{prose(source)}\n\n{table(('Metric', 'Unit', 'Better', 'Meaning'), rows)}"
