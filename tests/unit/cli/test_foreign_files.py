"""One damaged file is one line with its name and the reason; everything else is read as ever."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.cli import main
from gpubench_plugin.core.errors import ResultsError
from gpubench_plugin.results.reader import RunToResume
from gpubench_plugin.results.run_directory import RunDirectory
from gpubench_plugin.session.api import load_run
from tests.support.runs_builder import MLP, RESNET, run_id, write_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Run = Callable[..., tuple[int, str, str]]

pytestmark = pytest.mark.slow


DEEP = "[" * 200_000
SOUND, DAMAGED, LATER = run_id(1), run_id(2), run_id(3)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Results directory of two intact runs, and of a killed one between them."""
    for number in (1, 2, 3):
        status = None if number == 2 else "complete"
        write_run(tmp_path, number, {MLP: 0.010, RESNET: 0.020}, status=status)
    return tmp_path


@pytest.fixture
def run(results: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command in this process; return exit code, stdout, stderr; blocking is an error."""

    def call(*arguments: str, registry: str = "none") -> tuple[int, str, str]:
        with patience():
            code = main.main([*arguments, f"--results-dir={results}", f"--registry={registry}"])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.out + captured.err
        assert "gpubench: unexpected " not in captured.err
        return code, captured.out, captured.err

    return call


@contextmanager
def patience() -> Iterator[None]:
    def ring(*_: object) -> None:
        pytest.fail("it waits for somebody who writes into a pipe")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(30)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def change_event(**fields: Any) -> Callable[[str], str]:
    """Changes fields of the first benchmark in the text of a journal."""

    def change(text: str) -> str:
        lines = [json.loads(line) for line in text.splitlines()]
        next(line for line in lines if line["event"] == "benchmark").update(fields)
        return "".join(f"{json.dumps(line)}\n" for line in lines)

    return change


STEP = {"name": "step_time_s", "unit": "s", "better": "lower"}
END = {"schema_version": 1, "event": "run_finished", "time": "2026-01-01T00:00:00Z"}
JOURNALS: dict[str, Callable[[str], str]] = {
    "a deep line": lambda text: f"{text}{DEEP}\n",
    "settings a list": change_event(settings=["a"]),
    "timer a number": change_event(timer=3),
    "400 digits": change_event(metrics={"step_time_s": {**STEP, "value": 10**400}}),
    "status a mapping": lambda text: text + json.dumps({**END, "status": {"a": 1}}) + "\n",
}


@pytest.mark.parametrize("damage", JOURNALS)
def test_other_runs_are_read_beside_a_damaged_journal(results: Path, run: Run, damage: str) -> None:
    """Listing, showing, comparing, pruning, ingesting; exit code 4 for the damaged one."""
    path = results / "default" / DAMAGED / "metrics.jsonl"
    path.write_text(JOURNALS[damage](path.read_text()))
    code, out, _ = run("runs", "list")
    assert (code, SOUND in out, LATER in out) == (0, True, True)
    assert run("compare", SOUND, LATER)[0] == 0
    for words in (("runs", "show"), ("compare", SOUND)):
        code, _, err = run(*words, DAMAGED)
        assert (code, "metrics.jsonl" in err) == (4, True)
    assert run("runs", "prune", "--runs", "--keep-last=1", "--dry-run")[0] == 0
    for action in ("ingest", "rebuild"):
        code, out, _ = run("db", action, registry="")
        assert (code, out.count("not stored: ")) == (4, 1)
        assert "metrics.jsonl" in out


@pytest.mark.parametrize("name", ["metrics.jsonl", "system.json", "config_resolved.yaml"])
@pytest.mark.parametrize("kind", ["deep", "pipe", "huge"])
def test_a_damaged_run_does_not_go_on(results: Path, name: str, kind: str) -> None:
    """``--resume`` and the API raise one error that names the file."""
    directory = RunDirectory(path=results / "default" / DAMAGED)
    path = directory.path / name
    put(path, kind)
    for reader in (RunToResume, lambda run: load_run(run.path)):
        if kind == "pipe" and name == "metrics.jsonl" and reader is not RunToResume:
            continue  # a folder without a journal is no run
        with patience(), pytest.raises(ResultsError, match=name.replace(".", r"\.")):
            reader(directory)


def put(path: Path, kind: str) -> None:
    """Put a pipe, folder, link or other object in place of a file."""
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "huge":
        with path.open("wb") as file:
            file.truncate(10 << 30)  # takes no room on the disk
    else:
        path.write_text(f"{DEEP}\n")


@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "huge", "deep"])
@pytest.mark.parametrize("name", ["metrics.jsonl", "tags.json", "verdicts.json", "summary.json"])
def test_whatever_stands_in_a_run_is_said_of_that_run(
    results: Path, run: Run, name: str, kind: str
) -> None:
    """No command waits for a pipe, fills the memory, or gives up on the other runs."""
    put(results / "default" / DAMAGED / name, kind)
    code, out, _ = run("runs", "list")
    assert code == 0
    assert all(text in out for text in (SOUND, "broken", name))
    assert run("runs", "prune", "--runs", "--keep-last=1", "--dry-run")[0] in {0, 4}
    code, out, _ = run("db", "ingest", registry="")
    assert (code, name in out) == (4, True)
    assert run("compare", SOUND, LATER)[0] == 0


@pytest.mark.parametrize("kind", ["deep", "pipe", "folder", "huge"])
def test_a_damaged_baseline_is_said(results: Path, run: Run, kind: str) -> None:
    """It is listed, and costs the others nothing."""
    run("baseline", "set", "good", SOUND, "--force", "--reason=x")
    put(results / "baselines" / "main.json", kind)
    code, out, _ = run("baseline", "list")
    assert (code, "broken" in out) == (0, True)
    assert run("baseline", "show", "main")[0] == 4
    assert run("baseline", "show", "good")[0] == 0


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE facts_1 SET facts = '{'",
        "UPDATE results_1 SET metrics = '[]'",
        "UPDATE runs_1 SET tags = '{'",
        "DELETE FROM facts_1",
        "DROP TABLE results_1",
    ],
)
def test_a_damaged_index_is_said_and_rebuilt(results: Path, run: Run, sql: str) -> None:
    """Reading commands succeed or print one line that risks no document; then it is intact."""
    run("db", "ingest", registry="")
    with closing(sqlite3.connect(results / "registry.sqlite", isolation_level=None)) as connection:
        connection.execute(sql)
    for arguments in (["runs", "list"], ["history", "mlp"], ["db", "ingest"]):
        code, _, err = run(*arguments, registry="")
        assert code in {0, 2, 4}, arguments
        assert code == 0 or (len(err.splitlines()), "move it away" in err) == (1, False)
    assert run("db", "rebuild", registry="")[0] == 0
    assert run("history", "mlp", registry="")[0] == 0


def test_a_damaged_document_is_said_of_its_run(results: Path, run: Run) -> None:
    """The other runs are listed."""
    run("db", "ingest", registry="")
    shutil.rmtree(results / "default" / SOUND)
    with closing(sqlite3.connect(results / "registry.sqlite", isolation_level=None)) as connection:
        damage = "UPDATE documents SET text = X'FF', digest = '' WHERE name = ?"
        connection.execute(damage, [SOUND])
    code, out, _ = run("runs", "list", registry="")
    assert (code, "broken" in out, LATER in out) == (0, True, True)
    code, _, err = run("compare", SOUND, LATER, registry="")
    assert (code, f"document of run {SOUND} is damaged" in err) == (4, True)


@pytest.mark.parametrize("at", [0, 100, 4096])
def test_a_registry_with_flipped_bytes_is_said(results: Path, run: Run, at: int) -> None:
    """The message says what to do; the file is left as it is."""
    run("db", "ingest", registry="")
    file = results / "registry.sqlite"
    data = bytearray(file.read_bytes())
    data[at : at + 200] = bytes(byte ^ 0xFF for byte in data[at : at + 200])
    file.write_bytes(data)
    for arguments in (["runs", "list"], ["history", "mlp"], ["db", "ingest"]):
        assert run(*arguments, registry="")[0] in {0, 4}
    if at == 0:
        assert "move it away" in run("db", "rebuild", registry="")[2]
    file.unlink()
    assert run("db", "ingest", registry="")[0] == 0


def test_a_file_of_somebody_elses_is_no_registry_to_rebuild(results: Path, run: Run) -> None:
    """A wrong path after ``--registry`` destroys no file."""
    letter = results / "letter.txt"
    letter.write_text("Dear registry, " * 100)
    code, _, err = run("db", "rebuild", registry=f"sqlite:///{letter}")
    assert (code, "move it away" in err) == (4, True)
    assert letter.read_text().startswith("Dear registry")
    code, _, err = run("db", "rebuild", registry=f"sqlite:///{results}/default")
    assert (code, "not a regular file" in err) == (4, True)
