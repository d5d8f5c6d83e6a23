"""Validation of the files that gpubench writes."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.cli.ab.state import State
from gpubench_plugin.cli.main import main
from gpubench_plugin.cli.validation.kinds import KINDS
from gpubench_plugin.config import rounds_file
from gpubench_plugin.config.rounds_file import FixedRounds
from gpubench_plugin.core.records import Samples
from gpubench_plugin.environment import json_files
from gpubench_plugin.results.csv_table import table_text
from gpubench_plugin.results.recorder import append, append_events
from gpubench_plugin.results.tags import change_tags
from gpubench_plugin.training.checkpoint import Manifest
from tests.support.runs_builder import MLP, measurement, run_id, write_run, write_verdicts

if TYPE_CHECKING:
    from collections.abc import Callable

PYTEST_BENCHMARK = {
    "machine_info": {},
    "datetime": "2026-11-24T00:00:00Z",
    "benchmarks": [{"fullname": "t", "stats": {"median": 1.0, "min": 1.0, "rounds": 3}}],
}


SAMPLES = Samples(
    timer="cpu",
    durations_s=(0.1,),
    block_s=(0.1,),
    block_calls=(1,),
    first_step_s=None,
    warmup_s=(),
    warmup_calls=0,
)
UNPLACED = ("missing", "inconsistent", "did you", "newer", "truncated")
"""Words of problems that are not at one value."""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """A file of each kind, by kind; those of a run are in one folder."""
    monkeypatch.chdir(tmp_path)
    run = write_run(tmp_path / "results", 0)
    run.config_resolved.write_text(f"{MLP}:\n  training:\n    batch_size: 4\n")
    json_files.write_json(run.system, {"schema_version": 1, "hostname": "a", "python": {}})
    run.table.write_text(table_text(run.run_id, [measurement(), measurement("t")]))
    run.benchmark.write_text(json.dumps(PYTEST_BENCHMARK, indent=2))
    write_verdicts(run, [])
    change_tags(run, add=["good"])
    assert main(["baseline", "set", "main", run_id(0)]) == 0
    append(run.ranks, 0, MLP, SAMPLES)
    append_events(run.ranks, 0, MLP, [{"event": "step"}])
    checkpoint = run.checkpoints / "mlp" / "latest.json"
    checkpoint.parent.mkdir(parents=True)
    checkpoint.with_name("step.pt").write_bytes(b"abc")
    Manifest(
        file="step.pt",
        sha256=sha256(b"abc").hexdigest(),
        step=1,
        metrics={},
        settings={},
    ).write(checkpoint)
    comparison = tmp_path / "comparison"
    comparison.mkdir()
    State(folder=comparison, request={}, identity={}, seed=1).write()
    fixed = FixedRounds(rounds=4, durations_per_round=1, calls_per_duration=2)
    (comparison / "rounds.json").write_text(rounds_file.to_text({MLP: fixed}))
    return {
        **{name: run.path / kind.file_name for name, kind in KINDS.items()},
        "comparison": comparison / "state.json",
        "baseline": tmp_path / "results" / "baselines" / "main.json",
        "rank": run.ranks / "rank-0.jsonl",
        "checkpoint": checkpoint,
        "rounds": comparison / "rounds.json",
    }


def test_every_kind_of_file_is_validated(
    files: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """By its name, alone or as part of a run's folder; JSON under another name by its keys."""
    capsys.readouterr()
    assert main(["validate", *map(str, files.values())]) == 0
    out = capsys.readouterr().out
    assert [line.rpartition(": ")[2] for line in out.splitlines()] == [
        f"valid ({name})" for name in files
    ]
    assert main(["validate", str(files["summary"].parent), "comparison", "--format=json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {file["kind"] for file in document["files"]} == files.keys() - {"baseline"}

    for name, path in files.items():
        if path.suffix.startswith(".json") and name != "checkpoint":  # it has a file beside it
            other = Path("other.txt")
            other.write_bytes(path.read_bytes())
            assert main(["validate", str(other)]) == 0, name
            assert capsys.readouterr().out == f"other.txt: valid ({name})\n"


@pytest.mark.parametrize(
    ("kind", "old", "new", "problem"),
    [
        ("summary", '"outcome": "measured"', '"outcome": "ok"', "benchmarks.0.outcome: Input "),
        ("summary", '"status": "complete",', "", "status: missing key"),
        ("verdicts", '"notes": []', '"notes": 3', "notes: Input should be"),
        ("journal", '"outcome": "measured"', '"outcome": "ok"', "outcome: Input should be"),
        ("journal", "{", "", "invalid journal line: it is not JSON"),
        ("csv", ",measured,", ",ok,", "outcome: 'ok' is not allowed; allowed: measured, "),
        ("configurations", "  training:", "  trainings:", f"{MLP}: unknown section 'trainings'"),
        ("configurations", "training:", "training: [", "while parsing a flow sequence"),
        ("system", '"schema_version": 1', '"schema_version": 99', "schema_version 99 is newer"),
        ("pytest-benchmark", '"fullname"', '"fulname"', "(did you mean 'fulname'?)"),
        ("tags", '"tags": [', '"tags": [1, ', "tags.0: Input should be"),
        ("comparison", '"seed": 1', '"seed": "x"', "seed: Input should be"),
        ("rank", '"timer": "', '"timers": "', "samples.timer: missing key"),
        ("rank", '"events"', '"event"', "has neither samples nor events"),
        ("checkpoint", '"step": 1', '"step": "a"', "step: "),
        ("rounds", '"rounds": 4', '"rounds": 0', f"benchmarks.{MLP}.rounds: Input should be"),
        ("baseline", '"branch": "main"', '"branch": 1', "branch: Input should be"),
    ],
)
def test_a_problem_is_told_with_line_and_key(
    files: dict[str, Path],
    capsys: pytest.CaptureFixture[str],
    kind: str,
    old: str,
    new: str,
    problem: str,
) -> None:
    """Exit code 4, and the line is that of the value."""
    capsys.readouterr()
    path = files[kind]
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    assert main(["validate", str(path)]) == 4
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith(f"{path}:")
    assert problem in first
    line = int(first.removeprefix(f"{path}:").partition(":")[0])
    if not any(words in problem for words in UNPLACED):
        assert line == text[: text.index(old)].count("\n") + 1


def test_what_is_damaged_is_no_traceback(
    files: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Torn, empty, binary and nested files are problems of theirs, and the others still count."""
    capsys.readouterr()
    damages: list[Callable[[bytes], bytes]] = [
        lambda data: data[: len(data) // 2],
        lambda data: b"",
        lambda data: data + b"\xff",
        lambda data: b"[" * 10_000,
    ]
    for path in files.values():
        data = path.read_bytes()
        for damage in damages:
            path.write_bytes(damage(data))
            code = main(["validate", str(path)])
            captured = capsys.readouterr()
            assert (code, captured.err) in {(4, ""), (0, "")}, captured
            assert code == 4 or path.suffix in {".yaml", ".jsonl"}
        path.write_bytes(data)
    assert main(["validate", str(files["summary"].parent)]) == 0
    assert main(["validate", "last"]) == 0


def test_what_is_no_file_of_gpubench_is_a_usage_error(
    files: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """A missing file, one of another kind, and a folder that is no run."""
    capsys.readouterr()
    Path("notes.md").write_text("a")
    json_files.write_json(Path("other.json"), {"a": 1})
    for path, message in (
        ("gone.json", "no such file"),
        ("notes.md", "not recognized as a file with a schema; those are: summary.json, "),
        ("other.json", "not recognized"),
        ("results", "neither a run nor a comparison"),
    ):
        assert main(["validate", path]) == 2
        assert f"gpubench: {path}: {message}" in capsys.readouterr().err
