"""What may be removed of runs, and that nothing else is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.errors import ResultsError
from gpubench_plugin.results import pruning
from gpubench_plugin.results.journal import Journal
from gpubench_plugin.results.run_directory import RunDirectory
from gpubench_plugin.results.search import runs_in
from tests.runs_builder import FIRST, run_id, started, write_run

if TYPE_CHECKING:
    from pathlib import Path


def test_runs_are_chosen_by_number_and_age(tmp_path: Path) -> None:
    """The last of each experiment are spared; with both, a run must be neither late nor young."""
    for number in range(6):
        write_run(tmp_path, number, experiment="a" if number < 4 else "b")
    runs, now = runs_in(tmp_path), started(6)

    def chosen(keep_last: int | None, days: float | None) -> list[str]:
        found = pruning.older(runs, keep_last=keep_last, days=days, now=now)
        return [run.run_id for run in found]

    assert chosen(None, None) == []
    assert chosen(1, None) == [run_id(n) for n in (0, 1, 2, 4)]
    assert chosen(0, None) == [run_id(n) for n in range(6)]
    assert chosen(9, None) == []
    assert chosen(None, 3.5 / 24) == [run_id(n) for n in (0, 1, 2)]
    assert chosen(3, 3.5 / 24) == [run_id(0)]


def test_the_age_of_a_run_with_a_strange_name_is_its_journals(tmp_path: Path) -> None:
    """Somebody has renamed it."""
    run = write_run(tmp_path, 0)
    strange = RunDirectory(path=run.path.rename(run.path.with_name("mine")))
    now = datetime.now(UTC)
    assert pruning.older([strange], keep_last=None, days=1, now=now) == []
    later = now + timedelta(days=2)
    assert pruning.older([strange], keep_last=None, days=1, now=later) == [strange]
    assert later > FIRST


def test_traces_go_and_links_stay(tmp_path: Path) -> None:
    """What a link points to is somebody else's."""
    run = write_run(tmp_path, 0)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "data").write_text("mine")
    traces = run.path / "traces"
    traces.mkdir()
    (traces / "rank0.json").write_bytes(b"x" * 100)
    (traces / "link").symlink_to(outside)
    (run.path / "checkpoints").symlink_to(outside)

    (removal,) = pruning.removals(run, pruning.HEAVY)
    assert (removal.path, removal.bytes) == (traces, 100)
    pruning.remove(removal)
    assert not traces.exists()
    assert (run.path / "checkpoints").is_symlink()
    assert (outside / "data").read_text() == "mine"
    assert run.summary.exists()


def test_a_whole_run_goes_without_what_its_links_point_to(tmp_path: Path) -> None:
    """The experiment's folder stays."""
    run, other = write_run(tmp_path, 0), write_run(tmp_path, 1)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "data").write_text("mine")
    (run.path / "link").symlink_to(outside)
    removal = pruning.whole(run)
    assert removal.bytes == sum(f.stat().st_size for f in run.path.iterdir() if f.is_file())
    pruning.remove(removal)
    assert not run.path.exists()
    assert other.summary.exists()
    assert (outside / "data").exists()


def test_a_run_that_is_being_written_is_refused(tmp_path: Path) -> None:
    """Whatever was decided before: between looking and removing it may have been resumed."""
    run = write_run(tmp_path, 0, status=None)
    removal = pruning.whole(run)
    with Journal(run.journal), pytest.raises(ResultsError, match="another process"):
        pruning.remove(removal)
    assert run.system.exists()


def test_a_linked_run_or_experiment_is_a_link(tmp_path: Path) -> None:
    """Such a run belongs to another folder of results."""
    run = write_run(tmp_path / "other", 0)
    results = tmp_path / "results"
    (results / "default").mkdir(parents=True)
    (results / "default" / run.run_id).symlink_to(run.path)
    (results / "linked").symlink_to(run.path.parent)
    found = runs_in(results)
    assert len(found) == 2
    assert all(pruning.is_link(one) for one in found)
    assert not pruning.is_link(run)
