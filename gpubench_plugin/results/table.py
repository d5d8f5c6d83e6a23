"""``summary.csv``: one row per benchmark, for a spreadsheet.

A text that a spreadsheet would run as a formula (it starts with ``=``, ``+``, ``-`` or ``@``) gets
an apostrophe in front, and control characters are written as escapes. ``summary.json`` has the
texts as they are. Numbers are in the metrics' own units and round-trip exactly.
"""

from __future__ import annotations

import csv
import io
import math
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gpubench_plugin.records import Measurement

_FORMULA: Final = re.compile(r"\s*[=+\-@]")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def table_text(measurements: Sequence[Measurement]) -> str:
    """The text of ``summary.csv``.

    Columns: id, name, outcome, reason, world_size, one ``params.<name>`` per parameter, one per
    metric, flags (with semicolons between). A cell is empty where a benchmark lacks the value.
    """
    params = _in_order(name for m in measurements for name in m.params)
    metrics = _in_order(name for m in measurements for name in m.metrics)
    fixed = ["id", "name", "outcome", "reason", "world_size"]
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(
        [*fixed, *(_cell(f"params.{p}") for p in params), *map(_cell, metrics), "flags"]
    )
    for measurement in measurements:
        writer.writerow(_row(measurement, params, metrics))
    return written.getvalue()


def _row(measurement: Measurement, params: Iterable[str], metrics: Iterable[str]) -> Iterator[str]:
    yield from map(_cell, (measurement.id, measurement.name, measurement.outcome))
    yield _cell(measurement.reason)
    yield str(measurement.world_size)
    for name in params:
        yield _cell(measurement.params.get(name, ""))
    for name in metrics:
        metric = measurement.metrics.get(name)
        yield repr(metric.value) if metric and math.isfinite(metric.value) else ""
    yield _cell(";".join(measurement.flags))


def _cell(text: str) -> str:
    printable = _CONTROL.sub(lambda m: m[0].encode("unicode_escape").decode("ascii"), text)
    return f"'{printable}" if _FORMULA.match(printable) else printable


def _in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Each of `names` once, in the order of first appearance."""
    return tuple(dict.fromkeys(names))
