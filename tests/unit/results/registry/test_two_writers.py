"""Two who change a baseline, or a run's tags, at the same time, on both kinds of database.

What the other one has read is forced to be old by the time it is written.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Barrier
from typing import Any

import pytest
from gpubench_plugin.results.registry.checking import check

from gpubench_plugin.baselines.model import Baseline
from gpubench_plugin.baselines.store import KIND, Baselines
from gpubench_plugin.cli.main import main
from gpubench_plugin.core.errors import ResultsError
from gpubench_plugin.results.registry.registry import Registry
from gpubench_plugin.results.run_directory import RunDirectory
from gpubench_plugin.results.tags import change_tags

RUNS = tuple(f"2026010{day}T000000Z_run_00000{day}" for day in range(1, 6))


class Late(Registry):
    """What is read here first is not written before all others have read, too."""

    barrier: Barrier | None

    def documents(self, kind: str) -> dict[str, str]:
        texts = super().documents(kind)
        if self.barrier is not None:
            self.barrier.wait(20)
            self.barrier = None
        return texts


class Machines:
    """Machines, each with a folder of its own, that share a database."""

    def __init__(self, backend: Any, count: int, stack: ExitStack):
        self.url = backend.url or f"sqlite:///{backend.results_dir / 'registry.sqlite'}"
        self.folders = [backend.results_dir / f"machine{number}" for number in range(count)]
        self._stack = stack
        for folder in self.folders:
            folder.mkdir()

    def baselines(self, number: int, now: Callable[[], str] | None = None) -> Baselines:
        """The baselines of one machine, seen anew."""
        registry = self._stack.enter_context(Registry.open(self.url, self.folders[number]))
        return Baselines(self.folders[number], registry, **({"now": now} if now else {}))

    def at_once(self, *acts: Callable[[Baselines], Any]) -> list[Baselines]:
        """Each machine does one of `acts`, whose times are in this order; all read first."""
        barrier = Barrier(len(acts))

        def act(number: int) -> Baselines:
            with Late.open(self.url, self.folders[number]) as registry:
                assert isinstance(registry, Late)
                registry.barrier = barrier
                time = f"2026-02-01T00:00:00.00000{number}Z"
                baselines = Baselines(self.folders[number], registry, now=lambda: time)
                try:
                    acts[number](baselines)
                except ResultsError as error:
                    baselines.notes.append(f"refused: {error}")
                return baselines

        with ThreadPoolExecutor(max_workers=len(acts)) as pool:
            return list(pool.map(act, range(len(acts))))

    def merged(self) -> Baseline:
        """The baseline as all machines see it, which is the same."""
        every = [self.baselines(number).get("main") for number in range(len(self.folders))]
        assert every.count(every[0]) == len(every)
        assert every[0] is not None
        return every[0]


@pytest.fixture
def machines(backend: Any) -> Iterator[Callable[[int], Machines]]:
    """Machines that know the baseline ``main``, set on the first of them to the first run."""
    with ExitStack() as stack:

        def make(count: int) -> Machines:
            made = Machines(backend, count, stack)
            first = made.baselines(0, lambda: "2026-01-31T00:00:00.000000Z")
            first.set("main", [RUNS[0]], branch="main")
            return made

        yield make


def accept(test: str, run: str = RUNS[1]) -> Callable[[Baselines], Any]:
    return lambda baselines: baselines.accept("main", run, test, reason=f"{test} is meant")


def pin(*runs: str, **options: Any) -> Callable[[Baselines], Any]:
    return lambda baselines: baselines.set("main", runs, branch="main", **options)


def remove(baselines: Baselines) -> None:
    baselines.remove("main")


def told(every: list[Baselines]) -> list[str]:
    return [note for baselines in every for note in baselines.notes]


def test_acceptances_of_two_machines_are_both_kept(machines: Any) -> None:
    """Each has read before the other writes; all machines see both, with both changes."""
    both = machines(2)
    every = both.at_once(accept("test_x"), accept("test_y"))
    merged = both.merged()
    assert {*merged.acceptances} == {"test_x", "test_y"}
    assert [change.benchmark for change in merged.changes] == ["", "test_x", "test_y"]
    assert told(every) == []


def test_one_of_two_levels_of_a_benchmark_counts_and_the_other_is_told(machines: Any) -> None:
    """The later one wins, in any order of writing; the change log keeps both."""
    both = machines(2)
    every = both.at_once(accept("test", RUNS[1]), accept("test", RUNS[2]))
    merged = both.merged()
    assert merged.acceptances["test"].run == RUNS[2]
    assert [change.runs for change in merged.changes] == [(run,) for run in RUNS[:3]]
    (note,) = told(every)
    assert f"accepting test from {RUNS[1]} on (test is meant) has no effect" in note
    assert f"it was accepted from {RUNS[2]} on" in note


@pytest.mark.slow
@pytest.mark.parametrize("order", [1, -1], ids=["first", "last"])
def test_an_acceptance_survives_a_new_pin(machines: Any, order: int) -> None:
    """Whichever of them is the later one: accepted levels stay unless they are reset."""
    both = machines(2)
    every = both.at_once(*[accept("test"), pin(RUNS[3])][::order])
    merged = both.merged()
    assert (merged.runs, {*merged.acceptances}) == ((RUNS[3],), {"test"})
    assert len(merged.changes) == 3
    assert told(every) == []


def test_a_later_reset_ends_an_acceptance_and_that_is_told(machines: Any) -> None:
    """Nobody believes that a level is accepted which is not."""
    both = machines(2)
    every = both.at_once(accept("test"), pin(RUNS[3], reset_accepted=True))
    assert both.merged().acceptances == {}
    (note,) = told(every)
    assert "it was set without the earlier accepted levels" in note


@pytest.mark.slow
@pytest.mark.parametrize("order", [1, -1], ids=["first", "last"])
def test_a_removed_baseline_stays_removed(machines: Any, order: int) -> None:
    """In any order, an acceptance without a baseline has no effect, and a note says so."""
    both = machines(2)
    every = both.at_once(*[accept("test"), remove][::order])
    assert [both.baselines(number).get("main") for number in range(2)] == [None, None]
    (note,) = told(every)
    assert "accepting test" in note
    assert "it was removed" in note
    stored = json.loads(both.baselines(0)._registry.documents(KIND)["main"])  # type: ignore[union-attr] # there is one
    assert {change["action"] for change in stored["changes"]} == {"set", "accept", "remove"}


def test_of_two_pins_the_later_one_counts(machines: Any) -> None:
    """The writer of the earlier pin gets a note; a pin after a removal counts."""
    three = machines(3)
    every = three.at_once(remove, pin(RUNS[3]), pin(RUNS[4]))
    assert three.merged().runs == (RUNS[4],)
    assert len(three.merged().changes) == 4
    assert any(f"setting it to {RUNS[3]} has no effect" in note for note in told(every))


def test_what_was_done_without_the_database_is_merged_later(machines: Any) -> None:
    """Two disconnected machines get all changes once, in any order of reconnection."""
    both = machines(2)
    with both.baselines(1)._registry as registry:  # type: ignore[union-attr] # there is one
        text = registry.documents(KIND)["main"]
    for number, folder in enumerate(both.folders):
        (folder / "baselines").mkdir(exist_ok=True)
        (folder / "baselines" / "main.json").write_text(text)
        accept(f"test_{number}")(Baselines(folder))
        accept("both", RUNS[1 + number])(Baselines(folder))
    back = [both.baselines(number) for number in (1, 0, 1)]
    for baselines in back:
        baselines.get("main")
    merged = both.merged()
    assert {*merged.acceptances} == {"test_0", "test_1", "both"}
    assert len(merged.changes) == 5
    (note,) = told(back)
    assert f"accepting both from {RUNS[1]} on" in note


@pytest.mark.slow
def test_eight_machines_lose_nothing(machines: Any) -> None:
    """All of them read the same, then all write."""
    eight = machines(8)
    every = eight.at_once(*(accept(f"test_{number}") for number in range(8)))
    assert len(eight.merged().acceptances) == 8
    assert told(every) == []


def tag(registry: Registry, directory: RunDirectory, **change: Any) -> Any:
    """What ``gpubench runs tag`` does."""
    change_tags(directory, known_changes=registry.tag_changes(directory.run_id), **change)
    return registry.tag(directory)


def test_tags_given_at_once_are_all_stored(
    backend: Any, make_run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has tagged the folder first and stores last, stores the other's as well."""
    run = make_run(1)
    where = [f"--registry={backend.url}", f"--results-dir={backend.results_dir}"]
    store = Registry.tag
    others: list[list[str]] = []

    def late(registry: Registry, *about: Any) -> Any:
        """Store the tags after others have given and stored theirs."""
        if others:
            main(["runs", "tag", run.run_id, *others.pop(), *where])
        return store(registry, *about)

    monkeypatch.setattr(Registry, "tag", late)
    with backend.open() as registry:
        registry.ingest(run)
        others.append(["second"])
        assert main(["runs", "tag", run.run_id, "first", *where]) == 0
        assert [row.tags for row in registry.runs()] == [("first", "second")]
        others.append(["first", "--remove"])
        assert main(["runs", "tag", run.run_id, "third", *where]) == 0
        assert [row.tags for row in registry.runs()] == [("second", "third")]
        assert not registry.ingest(run)
        assert check(registry).errors == []


def test_tags_of_two_copies_of_a_run_are_merged(backend: Any, make_run: Any) -> None:
    """Given and taken on two machines; storing the run again from either loses none."""
    here = make_run(1)
    make_run.tag(here, "old")
    there = RunDirectory(
        path=backend.results_dir.with_name("there") / here.experiment / here.run_id
    )
    shutil.copytree(here.path, there.path)
    with backend.open() as registry:
        registry.ingest(here)
        change_tags(here, add=["here"])
        change_tags(there, add=["there"], remove=["old"])
        assert registry.tag(here) == ("here", "old")
        assert registry.tag(there) == ("here", "there")
        for copy in (here, there, here):
            registry.ingest(copy)
            assert [row.tags for row in registry.runs()] == [("here", "there")]
        assert tag(registry, here, remove=["there"]) == ("here",)
        assert registry.tag(there) == ("here",)
        registry.forget(here.run_id)
        assert registry.tag_changes(here.run_id) == frozenset()
