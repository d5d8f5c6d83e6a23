"""What ``gpubench history`` says of the numbers it shows."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.cli.main import main
from tests.support.runs_builder import measurement, write_run

if TYPE_CHECKING:
    from pathlib import Path

MINIMA = {"step_time_s": (0.05138, "s", "lower"), "step_time_min_s": (0.04919, "s", "lower")}


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs by a clock of the host, then two by the device's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GPUBENCH_REGISTRY", raising=False)
    for number, timer in enumerate(["perf_counter"] * 2 + ["cuda_events"] * 2):
        write_run(tmp_path / "results", number, [measurement(timer=timer, metrics=MINIMA)])


def test_the_table_says_which_step_time_it_shows(capsys: pytest.CaptureFixture[str]) -> None:
    """That by which the run is judged: of another metric there is but one."""
    assert main(["history", "mlp"]) == 0
    wall, device = capsys.readouterr().out.split("machine, clock or configuration 2 of 2")
    assert "each launch by its minimum (step_time_min_s), as it is judged" in wall
    assert wall.count("49.19 ms") == 4
    assert "51.38 ms" not in wall
    assert "each launch by its median (step_time_s), as it is judged" in device
    assert "49.19 ms" not in device
    assert main(["history", "mlp", "--metric=samples_per_s"]) == 0
    assert "as it is judged" not in capsys.readouterr().out


def test_the_documents_name_the_statistic(capsys: pytest.CaptureFixture[str]) -> None:
    """Per series in JSON, per row in CSV."""
    assert main(["history", "mlp", "--format=json"]) == 0
    series = json.loads(capsys.readouterr().out)["series"]
    told = [(one["statistic"], one["points"][0]["value"]) for one in series]
    assert told == [("step_time_min_s", 0.04919), ("step_time_s", 0.05138)]
    assert main(["history", "mlp", "--format=csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["statistic"] for row in rows] == ["step_time_min_s"] * 2 + ["step_time_s"] * 2
