"""``summary.csv``: one row per benchmark, with the same columns in every run.

The published schema is generated from the columns, and a test keeps it current::

    gpubench schema csv > docs/schemas/csv.schema.json
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from gpubench_plugin.core import catalog
from gpubench_plugin.core.quality_flags import doubtful_flags, other_flags
from gpubench_plugin.core.records import OUTCOMES
from gpubench_plugin.environment import json_files
from gpubench_plugin.environment.spreadsheet import csv_text

if TYPE_CHECKING:
    from gpubench_plugin.core.records import Json, Measurement
    from gpubench_plugin.environment.spreadsheet import Cell

_PROFILE: Final = "https://datapackage.org/profiles/2.0/tableschema.json"


@dataclass(frozen=True, kw_only=True)
class TableColumn:
    """A column; an `object` is JSON in the cell, an empty cell a missing value."""

    name: str
    type: Literal["string", "integer", "number", "object"]
    description: str
    required: bool = False
    choices: tuple[str, ...] = ()
    unit: str = ""


_ABOUT: Final = (
    TableColumn(name="run_id", type="string", description="Run id", required=True),
    TableColumn(name="id", type="string", description="pytest's node id", required=True),
    TableColumn(name="name", type="string", description="Test's name", required=True),
    TableColumn(
        name="outcome",
        type="string",
        description="What came of it",
        required=True,
        choices=OUTCOMES,
    ),
    TableColumn(name="reason", type="string", description="Why it was not measured"),
    TableColumn(
        name="doubts", type="string", description="Flags that put the numbers in doubt, with ;"
    ),
    TableColumn(name="notes", type="string", description="Other flags, with ;"),
    TableColumn(name="precision", type="string", description="Precision, if it has one"),
    TableColumn(name="world_size", type="integer", description="Ranks", required=True),
    TableColumn(
        name="launches", type="integer", description="Fresh processes per rank", required=True
    ),
    TableColumn(
        name="params", type="object", description="All parameters of the test: JSON, by name"
    ),
)
METRIC_UNITS: Final = {
    "step_time_s": "s",
    "step_time_ci_low_s": "s",
    "step_time_ci_high_s": "s",
    "step_time_mean_s": "s",
    "step_time_min_s": "s",
    "step_time_max_s": "s",
    "step_time_p95_s": "s",
    "step_time_p99_s": "s",
    "rounds": "count",
    "effective_rounds": "count",
    "samples_per_s": "samples/s",
    "samples_ci_low_per_s": "samples/s",
    "samples_ci_high_per_s": "samples/s",
    "tokens_per_s": "tokens/s",
    "bytes_per_s": "B/s",
    "busbw_bytes_per_s": "B/s",
    "tflops": "TFLOP/s",
    "mfu": "1",
    "peak_memory_bytes": "B",
    "warmup_s": "s",
    "first_step_s": "s",
    "compile_time_s": "s",
    "loss_first": "1",
    "loss_last": "1",
    "test_loss": "1",
    "test_accuracy": "1",
    "data_wait_fraction": "1",
}
"""Metrics with a column of their own, and their units, in order."""

_OTHER: Final = TableColumn(
    name="other_metrics",
    type="object",
    description="Metrics without a column, one's own among them: JSON, values by name, in the "
    "units that summary.json states",
)


def table_text(run_id: str, measurements: Sequence[Measurement]) -> str:
    """The table of a run; for the format of its cells see :func:`csv_text`."""
    titles = [*(column.name for column in _ABOUT), *METRIC_UNITS, _OTHER.name]
    return csv_text([titles, *(_row(run_id, measurement) for measurement in measurements)])


def table_schema() -> Json:
    """Table Schema of the file (https://datapackage.org/standard/table-schema)."""
    return {
        "$schema": _PROFILE,
        "title": "gpubench summary.csv",
        "description": "One row per benchmark of a run; empty cells are missing values.",
        "fields": [_field(column) for column in _columns()],
        "primaryKey": ["run_id", "id"],
        "missingValues": [""],
    }


def _columns() -> list[TableColumn]:
    meanings = _meanings()
    metrics = (
        TableColumn(name=name, type="number", description=meanings[name], unit=unit)
        for name, unit in METRIC_UNITS.items()
    )
    return [*_ABOUT, *metrics, _OTHER]


def _meanings() -> dict[str, str]:
    """What each metric that a source of this package produces is."""
    sources = (catalog.load("metrics", name) for name in catalog.choices("metrics"))
    return {name: meaning for source in sources for name, meaning in source.produces.items()}


def _row(run_id: str, measurement: Measurement) -> list[Cell]:
    values = {
        name: float(metric.value)
        for name, metric in measurement.metrics.items()
        if math.isfinite(metric.value)
    }
    other_values = {name: value for name, value in values.items() if name not in METRIC_UNITS}
    return [
        *(run_id, measurement.id, measurement.name, measurement.outcome, measurement.reason),
        ";".join(doubtful_flags(measurement.flags)),
        ";".join(other_flags(measurement.flags)),
        measurement.params.get("precision"),
        measurement.world_size,
        measurement.launches,
        _json_cell(dict(measurement.params)),
        *(values.get(name) for name in METRIC_UNITS),
        _json_cell(other_values),
    ]


def _json_cell(fields: Json) -> str | None:
    return json_files.text(fields) if fields else None


def _field(column: TableColumn) -> Json:
    constraints: Json = {"required": True} if column.required else {}
    if column.choices:
        constraints["enum"] = list(column.choices)
    unit = {"unit": column.unit} if column.unit else {}
    return {
        "name": column.name,
        "type": column.type,
        "description": column.description,
        **unit,
        **({"constraints": constraints} if constraints else {}),
    }
