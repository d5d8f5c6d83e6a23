"""What the Python functions return."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from gpubench_plugin.core.records import Samples
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


def test_a_notebook_shows_pictures_below_the_table(tmp_path: Path) -> None:
    """Rounds and curves of at most twelve benchmarks, said, and of scaling; all escaped."""
    write_run(tmp_path, 0)
    samples = Samples(
        timer="perf_counter",
        durations_s=(0.01, 0.02),
        block_s=(),
        block_calls=(),
        first_step_s=None,
        warmup_s=(),
        warmup_calls=0,
    )
    many = [measurement(f"t.py::test_<b>{n}", samples=samples) for n in range(14)]
    scaled = [replace(measurement(f"t.py::test_r[{n}]"), world_size=n) for n in (1, 2)]
    event = {"benchmark": many[0].id, "event": "training_step", "step": 5, "loss": 1.25}
    run = load_run(run_id(0), results_dir=tmp_path)
    page = replace(run, benchmarks=(*many, *scaled), events=(event,))._repr_html_()
    figures = ElementTree.fromstring(f"<body>{page}</body>")
    names = [summary.text for summary in figures.iter("summary")]
    assert names == [*(f"<b>{n}" for n in range(12)), "scaling"]
    assert "pictures of 12 of 14 benchmarks" in page
    shown = [element.text for element in figures.iter()]
    assert (shown.count("round 2: 20.00 ms"), shown.count("step 5: 1.250")) == (12, 1)
    assert "ideal" in shown
    assert not re.search(r"<script|\bid=|\bsrc=|href", page)
