"""Validation of the files that gpubench writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.cli.ab.request import Request
from gpubench_plugin.cli.ab.saved_state import SavedState
from gpubench_plugin.cli.commands.validate import KINDS
from gpubench_plugin.cli.main import main
from gpubench_plugin.config import rounds_file
from gpubench_plugin.config.rounds_file import FixedRounds
from gpubench_plugin.results.run_directory import change_tags
from gpubench_plugin.system import json_files
from tests.support.runs_builder import MLP, run_id, write_run, write_verdicts

if TYPE_CHECKING:
    from collections.abc import Callable

PYTEST_BENCHMARK = {
    "machine_info": {},
    "datetime": "2026-11-24T00:00:00+00:00",
    "benchmarks": [{"fullname": "t", "stats": {"median": 1.0, "min": 1.0, "rounds": 3}}],
}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """A file of each kind, by kind; those of a run are in one folder."""
    monkeypatch.chdir(tmp_path)
    run = write_run(tmp_path / "results", 0)
    json_files.write_json(run.system, {"schema_version": 1, "hostname": "a", "python": {}})
    json_files.write_json(run.benchmark, PYTEST_BENCHMARK)
    write_verdicts(run, [])
    change_tags(run, add=["good"])
    assert main(["baseline", "set", "main", run_id(0)]) == 0
    comparison = tmp_path / "comparison"
    comparison.mkdir()
    asked = Request(here=tmp_path, base="main")
    SavedState(folder=comparison, request=asked, identity={}, seed=1).write()
    fixed = FixedRounds(rounds=4, durations_per_round=1, calls_per_duration=2)
    (comparison / "rounds.json").write_text(rounds_file.to_text({MLP: fixed}))
    return {
        **{name: run.path / pattern for name, (pattern, _) in KINDS.items()},
        "comparison": comparison / "state.json",
        "baseline": tmp_path / "results" / "baselines" / "main.json",
        "rounds": comparison / "rounds.json",
    }


def test_every_kind_of_file_is_validated(
    files: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """By its name, alone or as part of a run's folder."""
    capsys.readouterr()
    assert main(["validate", *map(str, files.values())]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.rpartition(": ")[2] for line in lines] == [f"valid ({name})" for name in files]
    assert main(["validate", "last", "comparison", "--format=json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {file["kind"] for file in document["files"]} == files.keys() - {"baseline"}


@pytest.mark.parametrize(
    ("kind", "old", "new", "problem"),
    [
        ("summary", '"outcome": "measured"', '"outcome": "ok"', "benchmarks.0.outcome: Input "),
        ("summary", '"status": "complete",', "", "status: missing key"),
        ("verdicts", '"notes": []', '"notes": 3', "notes: Input should be"),
        ("journal", '"outcome": "measured"', '"outcome": "ok"', "line 2 violates the schema"),
        ("journal", "{", "", "line 1 is not JSON"),
        ("system", '"schema_version": 1', '"schema_version": 99', "schema_version 99"),
        ("pytest-benchmark", '"fullname"', '"fulname"', "benchmarks.0.fullname: missing key"),
        ("comparison", '"seed": 1', '"seed": "x"', "seed: Input should be"),
        ("rounds", '"rounds": 4', '"rounds": 0', f"benchmarks.{MLP}.rounds: Input should be"),
        ("baseline", '"branch": "main"', '"branch": 1', "branch: Input should be"),
        ("tags", '"tags": [', '"tags": [1, ', "tags.0: Input should be"),
    ],
)
def test_a_problem_is_one_line_with_file_and_key(
    files: dict[str, Path],
    capsys: pytest.CaptureFixture[str],
    kind: str,
    old: str,
    new: str,
    problem: str,
) -> None:
    """And exit code 4."""
    capsys.readouterr()
    path = files[kind]
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    assert main(["validate", str(path)]) == 4
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(str(path))
    assert problem in line


@pytest.mark.parametrize(
    "damage", [lambda data: b"", lambda data: data[: len(data) // 2], lambda data: b"\xff" + data]
)
def test_what_is_damaged_is_no_traceback(
    files: dict[str, Path], capsys: pytest.CaptureFixture[str], damage: Callable[[bytes], bytes]
) -> None:
    """Torn, empty and binary files are problems of theirs, and the others still count."""
    capsys.readouterr()
    for path in files.values():
        path.write_bytes(damage(path.read_bytes()))
    for path in files.values():
        assert main(["validate", str(path)]) == 4 or path.suffix == ".jsonl"
    assert main(["validate", str(files["summary"].parent), "--format=json"]) == 4
    captured = capsys.readouterr()
    assert "Traceback" not in captured.out + captured.err


def test_what_is_no_file_of_gpubench_is_a_usage_error(
    files: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """A missing file, one of another kind, and a folder that is no run."""
    capsys.readouterr()
    Path("notes.md").write_text("a")
    json_files.write_json(Path("other.json"), {"a": 1})
    for path, message in (
        ("gone.json", "no such file"),
        ("notes.md", "no name of a file with a schema; those are: summary.json, "),
        ("other.json", "no name of a file with a schema"),
        ("results", "neither a run nor a comparison"),
    ):
        assert main(["validate", path]) == 2
        assert f"gpubench: {path}: {message}" in capsys.readouterr().err
