"""The plugin without the library of its extra ``history``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from gpubench_plugin.cli.main import main
from tests.support.runs_builder import write_run


@pytest.fixture(autouse=True)
def _it_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ruptures", None)


def test_history_looks_for_no_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The values are shown; a note, and null in JSON, say that nobody looked for levels."""
    monkeypatch.chdir(tmp_path)
    for number in range(20):
        write_run(tmp_path / "results", number, {"test_a.py::test_a": 0.01 + number // 10})
    assert main(["history", "test_a", "--branch="]) == 0
    out, err = capsys.readouterr()
    assert "level changes are not detected: pip install 'pytest-gpubench[history]'" in err
    assert "20 runs" in out
    assert "no level change" not in out
    assert main(["history", "test_a", "--branch=", "--format=json"]) == 0
    (history,) = json.loads(capsys.readouterr().out)["histories"]
    (series,) = history["segments"]
    assert (series["changes"], len(series["points"])) == (None, 20)
    assert main(["history", "test_a", "--branch=", "--format=csv"]) == 0


def test_nobody_looked_at_few_runs_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A series too short for a change gets the note alone, not both."""
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "results", 0, {"test_a.py::test_a": 0.01})
    assert main(["history", "test_a", "--branch="]) == 0
    out, err = capsys.readouterr()
    assert "level changes are not detected" in err
    assert "no level change" not in out
