"""What a run is at a glance, whatever has become of it."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.results.journal import Journal
from gpubench_plugin.results.reader import RunReader, is_being_written
from gpubench_plugin.results.run_directory import change_tags
from tests.support.runs_builder import MLP, RESNET, measurement, run_id, write_run

if TYPE_CHECKING:
    from pathlib import Path


def test_a_run_that_ended_is_told_from_its_summary(tmp_path: Path) -> None:
    """With what was measured, which code, its tags, and whether it regressed."""
    failed = measurement(RESNET, outcome="oom")
    run = write_run(
        tmp_path, 3, [measurement(MLP), failed], status="failed", dirty=True, regressed=[MLP]
    )
    change_tags(run, add=["good"])
    overview = RunReader(run).overview()
    assert (overview.run_id, overview.experiment, overview.state) == (
        run_id(3),
        "default",
        "failed",
    )
    assert (overview.measured, overview.benchmarks) == (1, 2)
    assert overview.outcomes == {"measured": 1, "oom": 1}
    assert (overview.branch, overview.commit, overview.dirty) == ("main", f"{3:040x}", True)
    assert overview.regressed
    assert overview.tags == ("good",)
    assert overview.command == ("benchmarks", "-k", "mlp")
    assert overview.error == ""


def test_a_killed_run_is_interrupted_and_a_living_one_running(tmp_path: Path) -> None:
    """Both have no summary; a torn last line of the journal is no fault."""
    skipped = measurement(RESNET, outcome="not_measured")
    run = write_run(tmp_path, 0, [measurement(MLP), skipped], status=None)
    with run.journal.open("ab") as journal:
        journal.write(b'{"torn')
    overview = RunReader(run).overview()
    assert (overview.state, overview.measured, overview.benchmarks) == ("interrupted", 1, 2)
    assert not is_being_written(run)
    with Journal(run.journal):
        assert RunReader(run).overview().state == "running"
        assert is_being_written(run)
    assert RunReader(run).overview().state == "interrupted"


def test_without_locks_a_run_lives_as_long_as_its_journal_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some shared file systems have none: such a run is neither called dead nor pruned."""
    living, silent, ended = (
        write_run(tmp_path, number, [measurement(MLP)], status=status)
        for number, status in enumerate((None, None, "complete"))
    )
    os.utime(silent.journal, (0, time.time() - 1000))

    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    assert [is_being_written(run) for run in (living, silent, ended)] == [True, False, False]


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("summary.json", "", "is not JSON"),
        ("summary.json", "[]", "no schema_version"),
        ("summary.json", '{"schema_version": 2}', "schema_version 2"),
        ("summary.json", '{"schema_version": 1, "status": "complete"}', "KeyError"),
        ("summary.json", '{"schema_version": 1, "status": "fine"}', "'fine'"),
        ("summary.json", "\x00\xff", "not JSON"),
        ("tags.json", '{"schema_version": 1, "tags": [1]}', "tags.0"),
        ("verdicts.json", '{"schema_version": 1, "benchmarks": 3}', "benchmarks"),
        ("verdicts.json", '{"schema_version": 9}', "schema_version 9"),
        ("metrics.jsonl", '{"schema_version": 9}\n', "line 1: schema_version 9"),
    ],
)
def test_a_run_with_a_broken_file_is_broken_and_says_why(
    tmp_path: Path, name: str, text: str, reason: str
) -> None:
    """It is listed all the same."""
    run = write_run(tmp_path, 0)
    (run.path / name).write_text(text)
    overview = RunReader(run).overview()
    assert (overview.run_id, overview.state) == (run.run_id, "broken")
    assert reason in overview.error


@pytest.mark.parametrize("journal", [b"", b"no journal\nat all\n", b'{"a": 1}\n'])
def test_a_run_with_a_broken_journal_is_broken(tmp_path: Path, journal: bytes) -> None:
    """Unless a process is writing it: then it has only just begun."""
    run = write_run(tmp_path, 0, status=None)
    run.journal.write_bytes(journal)
    assert RunReader(run).overview().state == "broken"
    with Journal(run.journal):
        assert RunReader(run).overview().state == "running"
