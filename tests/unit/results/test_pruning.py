"""What of runs, and of killed processes, may be removed, and that nothing else is."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.core.errors import ResultsError
from gpubench_plugin.results import prune
from gpubench_plugin.results.journal import Journal
from gpubench_plugin.results.prune import artifacts, leftovers, remove_leftover
from gpubench_plugin.results.run_directory import RunDirectory, runs_in
from gpubench_plugin.system.files import temporary_name
from tests.support.runs_builder import run_id, started, write_run

if TYPE_CHECKING:
    from pathlib import Path


def test_runs_are_chosen_by_number_and_age(tmp_path: Path) -> None:
    """The last of each experiment are spared; with both, a run must be neither late nor young."""
    for number in range(6):
        run = write_run(tmp_path, number, experiment="a" if number < 4 else "b")
        write_at(run, started(number))
    runs, now = runs_in(tmp_path), started(6)

    def chosen(keep_last: int | None, days: float | None) -> list[str]:
        limits: Any = {"keep_last": keep_last, "days": days, "now": now}
        old_runs = prune.select_old(runs[::-1], prune.last_written, **limits)
        return [run.run_id for run in old_runs[::-1]]

    assert chosen(1, None) == [run_id(n) for n in (0, 1, 2, 4)]
    assert chosen(0, None) == [run_id(n) for n in range(6)]
    assert chosen(9, None) == []
    assert chosen(None, 3.5 / 24) == [run_id(n) for n in (0, 1, 2)]
    assert chosen(3, 3.5 / 24) == [run_id(0)]


def write_at(run: RunDirectory, moment: datetime) -> None:
    """Let every file of the run be of that moment."""
    for path in run.path.iterdir():
        os.utime(path, (moment.timestamp(), moment.timestamp()))


def is_old(run: RunDirectory, now: datetime) -> bool:
    return prune.select_old([run], prune.last_written, keep_last=None, days=1, now=now) == [run]


def test_a_run_is_as_old_as_what_was_written_last(tmp_path: Path) -> None:
    """Resumed, it is young again; having less in it does not make it so."""
    run, now = write_run(tmp_path, 0), started(48)
    (run.path / "traces").mkdir()
    write_at(run, started(0))
    (run.path / "traces").rmdir()
    assert is_old(run, now)
    yesterday = started(25).timestamp()
    os.utime(run.journal, (yesterday, yesterday))
    assert not is_old(run, now)


def test_a_copied_renamed_or_vanished_run_is_not_taken_for_old(tmp_path: Path) -> None:
    """A copy's id says when it began, a renamed run's journal; of one that is gone nothing does."""
    run = write_run(tmp_path, 30)
    write_at(run, started(-1000))
    assert not is_old(run, started(48))
    strange = RunDirectory(path=write_run(tmp_path, 0).path.rename(tmp_path / "default" / "mine"))
    now = datetime.now(UTC)
    assert not is_old(strange, now)
    assert is_old(strange, now + timedelta(days=2))
    assert not is_old(RunDirectory(path=tmp_path / "default" / run_id(0)), started(480))


@pytest.mark.parametrize("name", ["notes.md", "traces.txt", "data", "summary.csv", "ranks"])
def test_what_is_not_of_a_run_is_known(tmp_path: Path, name: str) -> None:
    """Somebody's file or folder beside the run's own, also under one of their names."""
    run = write_run(tmp_path, 0)
    (run.path / ".summary.csv.gpubench-0123abcd.tmp").touch()  # a killed session's, which goes
    assert prune.unknown_files(run) == []
    if name in {"data", "summary.csv"}:
        (run.path / name).mkdir()
    else:
        (run.path / name).touch()
    assert prune.unknown_files(run) == [name]


def test_a_part_or_a_whole_run_goes_without_what_links_point_to(tmp_path: Path) -> None:
    """A link goes, its target stays; so do other runs of the experiment."""
    run, other = write_run(tmp_path, 0), write_run(tmp_path, 1)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "data").write_text("mine")
    traces = run.path / "traces"
    traces.mkdir()
    (traces / "rank0.json").write_bytes(b"x" * 100)
    (traces / "link").symlink_to(outside)
    (run.path / "checkpoints").symlink_to(outside)
    removals = prune.targets(run.path / name for name in prune.HEAVY)
    assert {removal.path.name: removal.bytes for removal in removals}["traces"] == 100
    for removal in removals:
        prune.remove(run, removal.path)
    assert not traces.exists()
    assert run.summary.exists()
    run.log.symlink_to(outside / "data")
    prune.remove(run, run.path)
    assert not run.path.exists()
    assert other.summary.exists()
    assert (outside / "data").read_text() == "mine"


def test_a_run_that_is_being_written_is_refused(tmp_path: Path) -> None:
    """Whatever was decided before: between looking and removing it may have been resumed."""
    run = write_run(tmp_path, 0, status=None)
    with Journal(run.journal), pytest.raises(ResultsError, match="another process"):
        prune.remove(run, run.path)
    assert run.system.exists()


TEMPORARY = ".summary.json.gpubench-0123abcd.tmp"


def old(path: Path) -> Path:
    os.utime(path, (0, 0))
    return path


def found(results: Path) -> set[Path]:
    return {leftover.path for leftover in leftovers(results)}


def test_what_killed_processes_left_is_found_and_goes(tmp_path: Path) -> None:
    """Half a removal, and temporary files wherever files are written."""
    run, gone = write_run(tmp_path, 0), write_run(tmp_path, 1)
    removed = gone.path.rename(temporary_name(gone.path))
    folders = (tmp_path / "baselines", run.path, run.checkpoints / "a")
    temporary = []
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / TEMPORARY).write_text("half")
        temporary.append(old(folder / TEMPORARY))
    assert [one.run_id for one in runs_in(tmp_path)] == [run.run_id]
    assert found(tmp_path) == {removed, *temporary}
    for leftover in leftovers(tmp_path):
        assert leftover.bytes > 0
        remove_leftover(leftover.path)
        remove_leftover(leftover.path)  # somebody else was faster
    assert found(tmp_path) == set()
    assert run.summary.exists()


def test_a_run_under_removal_cannot_be_named(tmp_path: Path) -> None:
    """Its new name is none that an id begins with, and it is in no list."""
    run = write_run(tmp_path, 0)
    left = RunDirectory(path=run.path.rename(temporary_name(run.path)))
    assert left.journal.exists()
    assert runs_in(tmp_path) == []


def test_every_regular_file_is_listed_with_its_hash(tmp_path: Path) -> None:
    """Also those in folders."""
    run = write_run(tmp_path, 0)
    (run.path / "traces").mkdir()
    (run.path / "traces" / "rank0.json").write_bytes(b"x" * (3 << 20))
    found = {each["name"]: each for each in artifacts(run)}
    assert [*found] == [
        *("config_resolved.yaml", "metrics.jsonl", "summary.json", "system.json"),
        "traces/rank0.json",
    ]
    assert found["traces/rank0.json"]["bytes"] == 3 << 20
    for name, artifact in found.items():
        assert artifact["sha256"] == sha256((run.path / name).read_bytes()).hexdigest()
