"""What ``--baseline=last`` compares with: of each benchmark the last comparable run."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.baselines.last import LastResults, ended_here
from gpubench_plugin.baselines.model import Reference
from gpubench_plugin.baselines.resolve import Resolver
from gpubench_plugin.core.verdicts import LAST
from gpubench_plugin.results.reader import RunReader
from gpubench_plugin.results.registry.registry import Registry
from gpubench_plugin.results.run_directory import RunDirectory
from tests.support.runs_builder import MLP, RESNET, measurement, run_id, write_run

if TYPE_CHECKING:
    from pathlib import Path

BOTH = {MLP: 0.010, RESNET: 0.020}


def look_up(results: Path, number: int, *, url: str = "none", **about: Any) -> Reference:
    """What run `number`, which is written now, is compared with."""
    head = RunReader(write_run(results, number, **{"benchmarks": BOTH, **about})).run()
    with Resolver(url, results, results) as resolver:
        return resolver.reference(LAST, benchmarks=(), head=head)


def origins(last: Reference) -> dict[str, int]:
    """The number of the run that each benchmark is compared with."""
    return {name: int(run.run_id[-6:], 16) for run in last.runs for name in run.results}


def test_the_last_run_that_ended_is_taken_whatever_its_branch_and_changes(tmp_path: Path) -> None:
    """Interrupted, killed and later runs are not; age, commit and uncommitted changes are said."""
    write_run(tmp_path, 0, BOTH)
    write_run(tmp_path, 1, BOTH, branch="feature", dirty=True, commit="abcdef0123456789")
    write_run(tmp_path, 2, BOTH, status="interrupted")
    write_run(tmp_path, 3, BOTH, status=None)
    write_run(tmp_path, 5, BOTH)

    last = look_up(tmp_path, 4, dirty=True)

    assert last.kind == "last"
    assert origins(last) == {MLP: 1, RESNET: 1}
    about, changes = last.notes
    assert f"{run_id(1)} (3 hours ago, commit abcdef012, uncommitted changes)" in about
    assert "this run's code has uncommitted" in changes


def test_a_run_of_which_a_benchmark_failed_counts_for_the_others(tmp_path: Path) -> None:
    """Else a suite with one that always fails would say for ever that there is no earlier run."""
    write_run(tmp_path, 0, BOTH)
    failed = (measurement(MLP, outcome="failed"), measurement(RESNET))
    write_run(tmp_path, 1, failed, status="failed")

    assert origins(look_up(tmp_path, 2)) == {MLP: 0, RESNET: 1}


def test_a_benchmark_that_the_last_run_lacks_has_an_earlier_one(tmp_path: Path) -> None:
    """So has one that was measured with other settings there; a note names run and benchmark."""
    write_run(tmp_path, 0, BOTH)
    write_run(tmp_path, 1, [measurement(MLP, settings={"data.batch_size": 16})])
    write_run(tmp_path, 2, {RESNET: 0.020})

    last = look_up(tmp_path, 3)

    assert origins(last) == {MLP: 0, RESNET: 2}
    assert [run.run_id for run in last.runs] == [run_id(0), run_id(2)]
    first, second = last.notes
    assert first.startswith(f"compared with {run_id(2)} (1 hour ago")
    assert second.startswith(f"compared with {run_id(0)} (3 hours ago")
    assert second.endswith(f"), {MLP}")


def test_where_no_run_is_comparable_the_last_one_says_what_differs(tmp_path: Path) -> None:
    """A machine that changed since is a difference, and no first run."""
    write_run(tmp_path, 0, BOTH, facts={"cpu": {"model": "Another", "usable_cores": 2}})

    assert origins(look_up(tmp_path, 1)) == {MLP: 0, RESNET: 0}


@pytest.mark.parametrize("outcome", ["skipped", "gone"])
def test_what_the_run_before_measured_is_kept(tmp_path: Path, outcome: str) -> None:
    """So that a gate sees what is lost; not what was lost before, nor another machine's."""
    write_run(tmp_path, 0, {**BOTH, "t.py::test_old": 0.010})
    write_run(tmp_path, 1, BOTH)
    write_run(tmp_path, 2, [measurement(MLP), measurement("t.py::test_x", outcome="skipped")])
    other = {"cpu": {"model": "Another", "usable_cores": 2}}
    write_run(tmp_path, 3, {"t.py::test_y": 0.010}, facts=other)
    skipped = [measurement(RESNET, outcome="skipped")] if outcome == "skipped" else []

    last = look_up(tmp_path, 4, benchmarks=[measurement(MLP), *skipped])
    assert origins(last) == {MLP: 2, "t.py::test_x": 2}
    write_run(tmp_path, 5, BOTH)
    last = look_up(tmp_path, 6, benchmarks=[measurement(MLP), *skipped])
    assert origins(last) == {MLP: 5, RESNET: 5}
    assert all(RESNET not in note for note in last.notes)


def test_without_an_earlier_run_this_one_is_the_first(tmp_path: Path) -> None:
    """A run that measured none of its benchmarks is none."""
    first = look_up(tmp_path, 0)

    assert (first.kind, first.runs) == ("missing", ())
    assert first.notes == ("no earlier run: this is the first one",)
    other = look_up(tmp_path, 1, benchmarks={"t.py::test_other": 0.010})
    assert other.kind == "missing"
    assert "the earlier run has measured none of these benchmarks" in other.notes[0]


@pytest.mark.slow
def test_runs_of_equal_machines_are_taken_from_the_registry(tmp_path: Path) -> None:
    """One of another kind of machine, whose folder is not here, is not the last run of this one."""
    here, there = tmp_path / "here", tmp_path / "there"
    url = f"sqlite:///{tmp_path / 'shared.sqlite'}"
    ranks = [measurement(name, s, machine={"torch.threads": 1}) for name, s in BOTH.items()]
    runs = [
        write_run(there, 0, ranks, facts={"torch": {"version": "2.13.0", "threads": 2}}),
        write_run(there, 1, BOTH, facts={"cpu": {"model": "Another", "usable_cores": 2}}),
    ]
    with Registry.open(url, there) as registry:
        for run in runs:
            registry.ingest(RunDirectory(path=run.path))

    assert origins(look_up(here, 2, url=url)) == {MLP: 0, RESNET: 0}


def test_no_more_than_some_runs_are_read_for_a_new_benchmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else every session with one would read them all."""
    monkeypatch.setattr("gpubench_plugin.baselines.last.LOOKED_AT", 2)
    for number in range(3):
        write_run(tmp_path, number, {RESNET: 0.020} if number else BOTH)

    last = look_up(tmp_path, 3)

    assert origins(last) == {RESNET: 2}


def test_a_broken_run_is_left_out_and_named(tmp_path: Path) -> None:
    """The one before it is taken."""
    write_run(tmp_path, 0, BOTH)
    broken = write_run(tmp_path, 1, BOTH)
    broken.summary.write_text(broken.summary.read_text().replace('"measured"', '"banana"'))

    last = look_up(tmp_path, 2)

    assert origins(last) == {MLP: 0, RESNET: 0}
    assert any(note.startswith("skipped: ") and run_id(1) in note for note in last.notes)


def test_the_last_result_of_a_benchmark_is_found_while_others_are_measured(tmp_path: Path) -> None:
    """The latest comparable one; each run is read once, and no more than some."""
    write_run(tmp_path, 0, BOTH)
    write_run(tmp_path, 1, {MLP: 0.011})
    write_run(tmp_path, 2, [measurement(MLP, settings={"data.batch_size": 16})])
    write_run(tmp_path, 3, BOTH, facts={"cpu": {"model": "Another", "usable_cores": 2}})
    broken = write_run(tmp_path, 4, BOTH)
    broken.summary.write_text("{")
    head = RunReader(write_run(tmp_path, 5, BOTH)).run()
    write_run(tmp_path, 6, {MLP: 0.013})

    last = LastResults(ended_here(tmp_path, 9, []))
    steps = {
        name: result.metrics["step_time_s"].value
        for name in (MLP, RESNET)
        if (result := last.of(head, name)) is not None
    }

    assert steps == {MLP: 0.011, RESNET: 0.020}
    shutil.rmtree(tmp_path / "default")
    assert last.of(head, RESNET) is not None
    assert LastResults(ended_here(tmp_path, 9, [])).of(head, MLP) is None


def test_no_more_than_some_runs_are_read_while_others_are_measured(tmp_path: Path) -> None:
    """A benchmark that is new does not make a session read all of them."""
    for number in range(4):
        write_run(tmp_path, number, {RESNET: 0.020} if number else BOTH)
    head = RunReader(write_run(tmp_path, 4, BOTH)).run()

    assert LastResults(ended_here(tmp_path, 4, [])).of(head, MLP) is None
    assert LastResults(ended_here(tmp_path, 5, [])).of(head, MLP) is not None
