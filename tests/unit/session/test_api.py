"""What the Python functions return."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from gpubench_plugin.session.api import load_run
from tests.support.runs_builder import MLP, measurement, run_id, write_run

if TYPE_CHECKING:
    from pathlib import Path


def test_a_loaded_run_is_shown_as_on_the_terminal(tmp_path: Path) -> None:
    """One line as repr, a table of its width with doubts, and the same escaped for a notebook."""
    failed = replace(measurement("t.py::test_<b>", outcome="failed"), reason="<script>")
    write_run(tmp_path, 0, status="failed")
    benchmarks = (measurement(flags=("contended",)), failed)
    run = replace(load_run(run_id(0), results_dir=tmp_path), benchmarks=benchmarks)
    assert repr(run) == f"<PrintableRun {run_id(0)}: failed, 1 of 2 benchmarks measured>"
    table = run.table(60)
    assert max(map(len, table.splitlines())) <= 60
    assert "mlp_train" in table
    assert "contended" in table
    assert "<script>" in table
    assert run_id(0) in run._repr_html_()
    assert "&lt;script&gt;" in run._repr_html_()
    assert "<script>" not in run._repr_html_()
    assert asdict(run)["benchmarks"][0]["id"] == MLP
