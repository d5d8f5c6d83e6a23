"""Two who change a baseline, or a run's tags, at the same time, in files and both databases.

What the other one has read is forced to be old by the time it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from gpubench_plugin.baselines.store import Baselines
from gpubench_plugin.cli.main import main
from gpubench_plugin.core.errors import ResultsError, UsageProblem
from gpubench_plugin.results.registry import ingest
from gpubench_plugin.results.registry.registry import Registry
from gpubench_plugin.results.run_directory import tags_of

RUNS = tuple(f"2026010{day}T000000Z_run_00000{day}" for day in range(1, 6))

Act = Callable[[Baselines], Any]


class Late:
    """An owner of baselines that reads once, then waits for others to have read, too."""

    def __init__(self, owner: Any, barrier: Barrier):
        self._owner = owner
        self._barrier: Barrier | None = barrier

    def __getattr__(self, name: str) -> Any:
        return getattr(self._owner, name)

    def read(self, name: str) -> str | None:
        text: str | None = self._owner.read(name)
        barrier, self._barrier = self._barrier, None
        if barrier is not None:
            barrier.wait(20)
        return text


class LateBaselines(Baselines):
    """Baselines with a :class:`Late` owner."""

    late: Late

    @property
    def _owner(self) -> Any:
        return self.late


@pytest.fixture(params=["documents", "files"])
def owner(request: pytest.FixtureRequest, backend: Any) -> Iterator[Baselines]:
    """The baselines of a server, or of files; ``main`` is set to the first run."""
    with backend.open() as registry:
        server = registry if request.param == "documents" else None
        baselines = Baselines(backend.results_dir, server)
        baselines.set("main", [RUNS[0]], branch="main")
        yield baselines


def at_once(owner: Baselines, *acts: Act) -> list[str]:
    """Each of `acts` reads before any writes; return the errors."""
    barrier = Barrier(len(acts))

    def do(act: Act) -> str:
        writer = LateBaselines(owner.results_dir, owner.server)
        writer.late = Late(owner._owner, barrier)
        try:
            act(writer)
        except (ResultsError, UsageProblem) as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(max_workers=len(acts)) as pool:
        return [error for error in pool.map(do, acts) if error]


def accept(test: str, run: str = RUNS[1]) -> Act:
    return lambda baselines: baselines.accept("main", run, test, reason=f"{test} is meant")


def pin(*runs: str, **options: Any) -> Act:
    return lambda baselines: baselines.set("main", runs, branch="main", **options)


def remove(baselines: Baselines) -> None:
    baselines.remove("main")


def test_eight_acceptances_are_all_kept(owner: Baselines) -> None:
    """Each has read before the others write."""
    names = [f"test_{number}" for number in range(8)]
    assert at_once(owner, *map(accept, names)) == []
    merged = owner.require("main")
    assert {*merged.acceptances} == {*names}
    assert len(merged.changes) == 9


def test_acceptance_and_pin_are_both_kept(owner: Baselines) -> None:
    """In whatever order they are written; accepted levels stay unless they are reset."""
    assert at_once(owner, accept("test"), pin(RUNS[3])) == []
    merged = owner.require("main")
    assert (merged.runs, {*merged.acceptances}) == ((RUNS[3],), {"test"})


def test_of_two_contradicting_changes_the_later_counts_and_both_are_logged(
    owner: Baselines,
) -> None:
    """So for one benchmark accepted twice, and for two pins."""
    twice = (accept("test", RUNS[1]), accept("test", RUNS[2]), pin(RUNS[3]), pin(RUNS[4]))
    assert at_once(owner, *twice) == []
    merged = owner.require("main")
    assert len(merged.changes) == 5
    accepted = [change for change in merged.changes if change.action == "accept"]
    pinned = [change for change in merged.changes if change.action == "set"]
    assert merged.acceptances == {"test": accepted[-1]}
    assert merged.runs == pinned[-1].runs


def test_what_was_removed_meanwhile_is_not_accepted(owner: Baselines) -> None:
    """Who comes second is told; nothing is accepted without a baseline."""
    errors = at_once(owner, accept("test"), remove)
    assert owner.get("main") is None
    assert all("no baseline named 'main'" in error for error in errors)
    removed, _ = owner._read("main")
    assert removed is not None
    actions = {change.action for change in removed.changes}
    assert actions == {"set", "remove"} | ({"accept"} if not errors else set())


def test_one_of_two_sets_a_missing_baseline(owner: Baselines) -> None:
    """The other one leaves it alone, and is told."""
    owner.remove("main")
    (error,) = at_once(owner, *(pin(run, if_missing=True) for run in RUNS[1:3]))
    assert error == "baseline main already exists and is left unchanged"
    assert len(owner.require("main").changes) == 3


def test_who_is_always_too_late_is_told(owner: Baselines, monkeypatch: pytest.MonkeyPatch) -> None:
    """After as many attempts as nobody needs."""
    monkeypatch.setattr(type(owner._owner), "swap", lambda *_: False)
    with pytest.raises(ResultsError, match="'main': other writers were faster 100 times"):
        accept("test")(owner)


def test_tags_of_two_machines_are_all_kept(
    backend: Any, make_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One has the run's folder, the other one the registry alone; what was removed stays so."""
    run = make_run(1)
    url = backend.url or f"sqlite:///{backend.results_dir / 'registry.sqlite'}"

    def command(*words: str, folder: Path = backend.results_dir) -> None:
        assert main([*words, f"--registry={url}", f"--results-dir={folder}"]) == 0

    def tag(*words: str, **where: Any) -> None:
        command("runs", "tag", run.run_id, *words, **where)

    change = Registry.tag
    others: list[list[str]] = []

    def late(*about: Any, **changes: Any) -> Any:
        """The other machine was faster."""
        if others:
            tag(*others.pop(), folder=tmp_path)
        return change(*about, **changes)

    monkeypatch.setattr(Registry, "tag", late)
    with backend.open() as registry:
        registry.ingest(run)
        others.append(["second"])
        tag("first")
        tag("third", folder=tmp_path)
        make_run.judge(run, "mlp")
        for action in ("ingest", "rebuild"):
            command("db", action)
            assert [row.tags for row in registry.runs()] == [("first", "second", "third")]
        others.append(["first", "--remove"])
        tag("second", "--remove")
        assert [row.tags for row in registry.runs()] == [("third",)]
        assert tags_of(run) == ("third",)
        tag("third", "--remove", folder=tmp_path)
        assert [row.tags for row in registry.runs()] == [()]
        command("runs", "prune", "--runs", "--keep-last=0")
        assert run.path.exists()  # for the copy in its folder, until its machine is told
        tag("third", "--remove")
        command("runs", "prune", "--runs", "--keep-last=0")
        assert not run.path.exists()


def test_run_that_changed_while_others_wrote_is_stored_as_it_is(
    backend: Any, make_run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read when its turn to write has come."""
    directory = make_run(1, mlp=0.01)
    lock = ingest.lock

    def waited(connection: Any, run_id: str) -> None:
        make_run(1, mlp=0.02)
        lock(connection, run_id)

    with backend.open() as registry:
        monkeypatch.setattr(ingest, "lock", waited)
        assert registry.ingest(directory)
        monkeypatch.undo()
        (result,) = registry.run(directory.run_id).results.values()
        assert result.metrics["step_time_s"].value == 0.02
        assert not registry.ingest(directory)
