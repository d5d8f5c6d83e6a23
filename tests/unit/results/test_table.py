"""Tests of ``summary.csv``."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.records import Metric
from gpubench_plugin.results import table_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpubench_plugin.records import Measurement


def rows(*measurements: Measurement) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(table_text(measurements))))


def test_row_of_a_measured_benchmark(measured: Callable[..., Measurement]) -> None:
    """A row has the benchmark's names, parameters, metrics, doubts and notes, in this order."""
    (row,) = rows(measured(flags=("unsteady", "outliers", "throttled", "sketched")))
    assert list(row.items()) == [
        ("id", "benchmarks/training/test_mlp.py::test_mlp_train[amp-ws1]"),
        ("name", "test_mlp_train"),
        ("outcome", "measured"),
        ("reason", ""),
        ("world_size", "1"),
        ("params.precision", "amp"),
        ("params.world_size", "ws1"),
        ("step_time_s", "0.011"),
        ("samples_per_s", "727.25"),
        ("doubts", "throttled;unsteady"),
        ("notes", "outliers;sketched"),
    ]


def test_benchmarks_with_different_columns(measured: Callable[..., Measurement]) -> None:
    """Every benchmark has a cell for every column, empty where it lacks the value."""
    failed = measured(
        outcome="failed", reason="boom, twice", metrics={}, params={"size": "4"}, flags=()
    )
    first, second = rows(measured(), failed)
    assert list(first) == list(second)
    assert (first["params.size"], second["params.size"]) == ("", "4")
    assert (second["reason"], second["step_time_s"]) == ("boom, twice", "")


@pytest.mark.parametrize("value", [0.1 + 0.2, -1.5e-9, 1e22])
def test_numbers_round_trip(measured: Callable[..., Measurement], value: float) -> None:
    """A number, a negative one too, is read back as the very same number."""
    metric = Metric(name="drift", value=value, unit="")
    assert float(rows(measured(metrics={"drift": metric}))[0]["drift"]) == value


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@SUM(A1)", " =1"])
def test_formulas_are_defused(measured: Callable[..., Measurement], name: str) -> None:
    """A text that a spreadsheet would run gets an apostrophe in front."""
    assert rows(measured(name=name))[0]["name"] == f"'{name}"


def test_one_line_per_benchmark(measured: Callable[..., Measurement]) -> None:
    """Control characters are escaped, so that no cell breaks its line."""
    text = table_text([measured(reason="a\nb\r\x1b\u2028c")])
    assert len(text.splitlines()) == 2
    assert rows(measured(reason="a\nb\x1b"))[0]["reason"] == "a\\nb\\x1b"


def test_table_without_benchmarks() -> None:
    """A run that selected nothing has the titles only."""
    assert table_text([]) == "id,name,outcome,reason,world_size,doubts,notes\n"
