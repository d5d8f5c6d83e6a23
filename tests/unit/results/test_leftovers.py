"""What is taken for left behind by a killed process, and that nothing else is."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gpubench_plugin.results.prune import leftovers, remove_leftover
from gpubench_plugin.results.run_directory import RunDirectory, removal_name, runs_in
from tests.support.runs_builder import run_id, write_run

TEMPORARY = ".summary.json.gpubench-0123abcd.tmp"
LATER = datetime.now(UTC) + timedelta(days=2)


def old(path: Path) -> Path:
    os.utime(path, (0, 0))
    return path


def found(results: Path, before: datetime | None = LATER) -> set[Path]:
    return {leftover.path for leftover in leftovers(results, unbegun_before=before)}


def never_begun(results: Path, number: int = 9, *more: str) -> Path:
    """The folder of a run whose session was killed before it had a journal."""
    folder = results / "default" / run_id(number)
    folder.mkdir(parents=True)
    for name in ("config_resolved.yaml", "system.json", TEMPORARY, *more):
        (folder / name).write_text("{}")
    return folder


def test_what_killed_processes_left_is_found_and_goes(tmp_path: Path) -> None:
    """Half a removal, a run without a journal, and temporary files wherever files are written."""
    run, gone = write_run(tmp_path, 0), write_run(tmp_path, 1)
    removed = gone.path.rename(removal_name(gone.path))
    begun = never_begun(tmp_path)
    folders = (tmp_path / "baselines", tmp_path / ".spool", run.path, run.checkpoints / "a")
    temporary = []
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / TEMPORARY).write_text("half")
        temporary.append(old(folder / TEMPORARY))
    assert [one.run_id for one in runs_in(tmp_path)] == [run.run_id]
    assert found(tmp_path) == {removed, begun, *temporary}
    for leftover in leftovers(tmp_path, unbegun_before=LATER):
        assert leftover.bytes > 0
        remove_leftover(leftover.path)
        remove_leftover(leftover.path)  # somebody else was faster
    assert found(tmp_path) == set()
    assert run.summary.exists()


def test_a_folder_that_may_yet_become_a_run_stays(tmp_path: Path) -> None:
    """A session that has just begun has no journal either; one of another name is no run."""
    never_begun(tmp_path, 8).rename(tmp_path / "default" / "mine")
    assert found(tmp_path) == set()
    never_begun(tmp_path)
    assert found(tmp_path, datetime.now(UTC) - timedelta(days=1)) == set()
    assert found(tmp_path, None) == set()


@pytest.mark.parametrize("name", ["notes.md", "metrics.jsonl", "state.json", "ranks/rank-0.log"])
def test_a_folder_with_anything_else_stays(tmp_path: Path, name: str) -> None:
    """It is a run, a comparison, or contains foreign files."""
    folder = never_begun(tmp_path)
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("mine")
    assert found(tmp_path) == set()


def test_a_run_under_removal_cannot_be_named(tmp_path: Path) -> None:
    """Its new name is none that an id begins with, and it is in no list."""
    run = write_run(tmp_path, 0)
    left = RunDirectory(path=run.path.rename(removal_name(run.path)))
    assert left.journal.exists()
    assert runs_in(tmp_path) == []
