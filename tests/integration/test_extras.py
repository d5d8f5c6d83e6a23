"""The plugin without the libraries of its extras ``history`` and ``sketch``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from gpubench_plugin.cli.main import main
from gpubench_plugin.results.reader import StoredRun
from gpubench_plugin.results.run_directory import RunDirectory
from tests.support.projects import InlineProject
from tests.support.runs_builder import write_run

BENCHMARK = """
def test_short(gpubench):
    gpubench(lambda: sum(range(2_000)))
"""


@pytest.fixture(autouse=True)
def _neither_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ruptures", "datasketches"):
        monkeypatch.setitem(sys.modules, name, None)


@pytest.fixture
def project(tmp_path: Path) -> InlineProject:
    project = InlineProject(tmp_path)
    project.write("test_it.py", BENCHMARK)
    return project


@pytest.mark.slow
def test_many_durations_are_measured_without_percentiles(project: InlineProject) -> None:
    """The median, its interval and the extremes are there, the percentiles are not; all is read."""
    steps = ("--measure.by=steps", "--measure.steps=2000", "--measure.warmup_s=0.001")
    run = project.run("--measure.keep_durations=20", *steps, quick=False)
    assert run.code == 0, run.out + run.err
    (benchmark,) = run.summary["benchmarks"]
    assert "sketched" in benchmark["flags"]
    names = set(benchmark["metrics"])
    assert {"step_time_s", "step_time_mean_s", "step_time_min_s", "step_time_max_s"} <= names
    assert not {"step_time_p95_s", "step_time_p99_s"} & names
    (measurement,) = StoredRun(RunDirectory(path=run.directory)).record().benchmarks
    assert measurement.samples is not None
    assert measurement.samples.sketch is not None
    assert measurement.samples.sketch.count > 100


@pytest.mark.slow
def test_a_rank_error_that_nothing_keeps_to_is_refused(project: InlineProject) -> None:
    """Before anything is measured; the message names the extra."""
    run = project.run("--measure.sketch_rank_error=0.01")
    assert run.code == 4
    assert (
        "--measure.sketch_rank_error=0.01: 0.01 requires datasketches, which is not installed"
        in run.err
    )
    assert "pip install 'pytest-gpubench[sketch]'" in run.err


def test_history_looks_for_no_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The values are shown; a note, and null in JSON, say that nobody looked for levels."""
    monkeypatch.chdir(tmp_path)
    for number in range(20):
        write_run(tmp_path / "results", number, {"test_a.py::test_a[ws1]": 0.01 + number // 10})
    assert main(["history", "test_a", "--branch="]) == 0
    out, err = capsys.readouterr()
    assert "level changes are not detected: pip install 'pytest-gpubench[history]'" in err
    assert "20 runs" in out
    assert "no change of level" not in out
    assert main(["history", "test_a", "--branch=", "--format=json"]) == 0
    (history,) = json.loads(capsys.readouterr().out)["histories"]
    (series,) = history["series"]
    assert (series["change_points"], len(series["points"])) == (None, 20)
    assert main(["history", "test_a", "--branch=", "--format=csv"]) == 0
