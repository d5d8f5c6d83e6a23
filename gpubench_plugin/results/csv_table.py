"""``summary.csv``: one row per benchmark, with the same columns in every run.

The published schema is generated from the columns, and a test keeps it current::

    gpubench schema csv > docs/schemas/csv.schema.json
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, Final

from gpubench_plugin.core import catalog
from gpubench_plugin.core.format import Cell, csv_text
from gpubench_plugin.core.quality_flags import doubtful_flags, other_flags
from gpubench_plugin.core.records import OUTCOMES, Json, Measurement
from gpubench_plugin.system import json_files

_PROFILE: Final = "https://datapackage.org/profiles/2.0/tableschema.json"


def _field(name: str, type: str, description: str, *, unit: str = "", **constraints: Any) -> Json:
    """A field of the schema; an ``object`` is JSON in the cell, an empty cell a missing value."""
    return {
        "name": name,
        "type": type,
        "description": description,
        **({"unit": unit} if unit else {}),
        **({"constraints": constraints} if constraints else {}),
    }


_ABOUT: Final = (
    _field("run_id", "string", "Run id", required=True),
    _field("id", "string", "pytest's node id", required=True),
    _field("name", "string", "Test's name", required=True),
    _field("outcome", "string", "What came of it", required=True, enum=list(OUTCOMES)),
    _field("reason", "string", "Why it was not measured"),
    _field("doubts", "string", "Flags that put the numbers in doubt, with ;"),
    _field("notes", "string", "Other flags, with ;"),
    _field("precision", "string", "Precision, if it has one"),
    _field("world_size", "integer", "Ranks", required=True),
    _field("launches", "integer", "Fresh processes per rank", required=True),
    _field("params", "object", "All parameters of the test: JSON, by name"),
)
METRICS: Final = (
    *("step_time_s", "step_time_ci_low_s", "step_time_ci_high_s", "step_time_mean_s"),
    *("step_time_min_s", "step_time_max_s", "step_time_p95_s", "step_time_p99_s"),
    *("rounds", "effective_rounds"),
    *("samples_per_s", "samples_ci_low_per_s", "samples_ci_high_per_s", "tokens_per_s"),
    *("bytes_per_s", "busbw_bytes_per_s", "tflops", "mfu", "peak_memory_bytes"),
    *("warmup_s", "first_step_s", "compile_time_s", "loss_first", "loss_last"),
    *("test_loss", "test_accuracy", "data_wait_fraction"),
)
"""Metrics with a column of their own, in order."""

_UNITS: Final = {
    r"samples_.*per_s": "samples/s",
    r"tokens_per_s": "tokens/s",
    r".*bytes_per_s": "B/s",
    r".*_bytes": "B",
    r".*_s": "s",
    r".*rounds": "count",
    r"tflops": "TFLOP/s",
    r"mfu|test_accuracy|.*_fraction": "fraction",
}
"""Units by the names of their metrics, of which the first fits; others have none."""

_OTHER: Final = _field(
    "other_metrics",
    "object",
    "Metrics without a column, one's own among them: JSON, values by name, in the units that "
    "summary.json states",
)


def table_text(run_id: str, measurements: Sequence[Measurement]) -> str:
    """The table of a run; for the format of its cells see :func:`csv_text`."""
    titles = [*(field["name"] for field in _ABOUT), *METRICS, _OTHER["name"]]
    return csv_text([titles, *(_row(run_id, measurement) for measurement in measurements)])


def table_schema() -> Json:
    """Table Schema of the file (https://datapackage.org/standard/table-schema)."""
    sources = (catalog.load("metrics", name) for name in catalog.choices("metrics"))
    meanings = {name: meaning for source in sources for name, meaning in source.produces.items()}
    units = {
        name: next((unit for form, unit in _UNITS.items() if re.fullmatch(form, name)), "1")
        for name in METRICS
    }
    metrics = (_field(name, "number", meanings[name], unit=unit) for name, unit in units.items())
    return {
        "$schema": _PROFILE,
        "title": "gpubench summary.csv",
        "description": "One row per benchmark of a run; empty cells are missing values.",
        "fields": [*_ABOUT, *metrics, _OTHER],
        "primaryKey": ["run_id", "id"],
        "missingValues": [""],
    }


def _row(run_id: str, measurement: Measurement) -> list[Cell]:
    values = {
        name: float(metric.value)
        for name, metric in measurement.metrics.items()
        if math.isfinite(metric.value)
    }
    return [
        *(run_id, measurement.id, measurement.name, measurement.outcome, measurement.reason),
        ";".join(doubtful_flags(measurement.flags)),
        ";".join(other_flags(measurement.flags)),
        measurement.params.get("precision"),
        measurement.world_size,
        measurement.launches,
        _json_cell(dict(measurement.params)),
        *(values.get(name) for name in METRICS),
        _json_cell({name: value for name, value in values.items() if name not in METRICS}),
    ]


def _json_cell(fields: Json) -> str | None:
    return json_files.text(fields) if fields else None
