"""Tests of ``summary.csv``."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.core import records
from gpubench_plugin.core.records import Metric
from gpubench_plugin.results.csv_table import METRICS, table_schema, table_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpubench_plugin.core.records import Measurement

SCHEMAS = Path(records.__file__).parents[2] / "docs" / "schemas"


def rows(*measurements: Measurement) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(table_text("r1", measurements))))


def test_row_of_a_measured_benchmark(measured: Callable[..., Measurement]) -> None:
    """A row has names, parameters, doubts, notes and metrics; those without a column are JSON."""
    own = Metric(name="depth", value=3.0, unit="count")
    metrics = {**measured().metrics, "depth": own}
    flags = ("unsteady", "outliers", "throttled", "sampled")
    (row,) = rows(measured(flags=flags, metrics=metrics))
    assert {name: cell for name, cell in row.items() if cell} == {
        "run_id": "r1",
        "id": "benchmarks/training/test_mlp.py::test_mlp_train[amp]",
        "name": "test_mlp_train",
        "outcome": "measured",
        "doubts": "throttled;unsteady",
        "notes": "outliers;sampled",
        "precision": "amp",
        "world_size": "1",
        "launches": "1",
        "params": '{"precision": "amp", "world_size": "1"}',
        "step_time_s": "0.011",
        "samples_per_s": "727.25",
        "other_metrics": '{"depth": 3.0}',
    }


def test_every_run_has_the_same_columns(measured: Callable[..., Measurement]) -> None:
    """Those of the published schema, in its order, whatever was measured, or nothing."""
    failed = measured(outcome="failed", reason="boom", metrics={}, params={}, flags=())
    published = json.loads((SCHEMAS / "csv.schema.json").read_text(encoding="utf-8"))
    assert table_schema() == published
    names = [field["name"] for field in published["fields"]]
    for measurements in ([], [failed], [measured(), failed]):
        text = table_text("r1", measurements)
        assert text.splitlines()[0].split(",") == names
    assert rows(failed)[0]["reason"] == "boom"
    assert [field["name"] for field in published["fields"] if "unit" in field] == [*METRICS]


@pytest.mark.parametrize("value", [0.1 + 0.2, -1.5e-9, 1e22])
def test_numbers_round_trip(measured: Callable[..., Measurement], value: float) -> None:
    """A number, a negative one too, is read back as the very same number."""
    metrics = {name: Metric(name=name, value=value, unit="") for name in ("drift", "loss_last")}
    (row,) = rows(measured(metrics=metrics))
    assert float(row["loss_last"]) == value
    assert json.loads(row["other_metrics"]) == {"drift": value}
