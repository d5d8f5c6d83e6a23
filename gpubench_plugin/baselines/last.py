"""``--baseline=last``: the latest comparable run of each benchmark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

from gpubench_plugin.baselines.model import Reference
from gpubench_plugin.compare.comparability import Comparability, is_same_machine
from gpubench_plugin.compare.matching import restricted_to
from gpubench_plugin.core.errors import GpubenchError
from gpubench_plugin.core.format import counted, listed, short_commit
from gpubench_plugin.core.records import Result, Run, RunStatus
from gpubench_plugin.core.verdicts import LAST
from gpubench_plugin.results.reader import RunReader
from gpubench_plugin.results.run_directory import runs_in

if TYPE_CHECKING:
    from pathlib import Path

    from gpubench_plugin.results.registry.connection import Connection
    from gpubench_plugin.results.registry.registry import Registry


LOOKED_AT: Final = 50
"""Runs read, at most, for a benchmark missing from the latest ones."""

READ_BESIDE_MEASURING: Final = 10
"""Runs read, at most, while others are measured: some milliseconds each."""

_ENDED: Final[frozenset[RunStatus | None]] = frozenset({"complete", "failed"})


def last_runs(head: Run, *, results_dir: Path, connection: Connection) -> Reference:
    """The latest comparable run before `head` for each of its benchmarks, usually one run.

    Runs with failed benchmarks count for the others, interrupted ones do not. A benchmark missing
    from the latest run, or measured with other settings, has an earlier one, also of the registry;
    if none is comparable, the latest incomparable one, whose verdict says what differs.
    """
    notes: list[str] = []
    search = _Search(head)
    search.search(_ended_here(results_dir, LOOKED_AT, notes))
    if search.missing and connection.registry is not None:
        search.search(_of_equal_machines(connection.registry, head, results_dir))
    elif search.missing and connection.error:
        notes.append(f"only runs in {results_dir} are considered: {connection.error}")
    runs = search.matches()
    return Reference(
        label=LAST,
        kind="last" if runs else "missing",
        runs=runs,
        notes=(*notes, *_provenance_notes(runs, head, search.searched)),
    )


def _ended_here(results_dir: Path, limit: int, notes: list[str]) -> Iterator[Run]:
    """The latest runs below `results_dir`, newest first; `notes` name those that are unreadable."""
    ended = (run for run in reversed(runs_in(results_dir)) if run.summary.exists())
    for directory in islice(ended, limit):
        try:
            yield RunReader(directory).run()
        except GpubenchError as error:
            notes.append(f"skipped: {error}")


def _of_equal_machines(registry: Registry, head: Run, results_dir: Path) -> Iterator[Run]:
    """Runs among the latest in the registry that are not here, newest first."""
    local_ids = {directory.run_id for directory in runs_in(results_dir)}
    for overview in registry.runs(limit=LOOKED_AT):
        if overview.run_id in local_ids or overview.error:
            continue
        run = registry.run(overview.run_id)
        if run is not None and is_same_machine(run, head):
            yield run


class LastResults:
    """The last comparable result of each benchmark of one run on this machine, read as needed.

    Runs are read from their directories, newest first, each once, and at most `limit` of them:
    without the registry, whose libraries take memory that a CPU's numbers include.
    """

    def __init__(self, results_dir: Path, *, limit: int = READ_BESIDE_MEASURING):
        self._unread = _ended_here(results_dir, limit, [])
        self._runs: list[Run] = []

    def of(self, head: Run, name: str) -> Result | None:
        """The latest earlier result that is comparable with benchmark `name` of `head`."""
        for run in chain(self._runs, self._newly_read(head)):
            if _is_comparable(run, head, name):
                return run.results[name]
        return None

    def _newly_read(self, head: Run) -> Iterator[Run]:
        for run in self._unread:
            if _precedes(run, head):
                self._runs.append(run)
                yield run


def _precedes(run: Run, head: Run) -> bool:
    """Whether the run ended, and began before `head`."""
    is_earlier = run.run_id != head.run_id and run.started < head.started
    return run.status in _ENDED and is_earlier


def _is_comparable(run: Run, head: Run, name: str) -> bool | None:
    """Whether the run's benchmark `name` is comparable with the head's; None if not measured."""
    result = run.results.get(name)
    if result is None or result.outcome != "measured":
        return None
    comparability = Comparability(exempt=(), allow=False)
    return not comparability.differences(run, result, head, head.results[name])


@dataclass
class _Search:
    """Search for the run to compare each benchmark of `head` with, by benchmark."""

    head: Run
    searched: list[Run] = field(default_factory=list)
    comparable: dict[str, Run] = field(default_factory=dict)
    incomparable: dict[str, Run] = field(default_factory=dict)

    @property
    def missing(self) -> list[str]:
        """Benchmarks without a comparable run so far."""
        measured = (r.id for r in self.head.results.values() if r.outcome == "measured")
        return [name for name in measured if name not in self.comparable]

    def search(self, runs: Iterable[Run]) -> None:
        """Search the `runs`, newest first, until nothing is missing."""
        for run in runs:
            if _precedes(run, self.head):
                self.searched.append(run)
                self._check(run)
            if not self.missing:
                return

    def _check(self, run: Run) -> None:
        for name in self.missing:
            is_comparable = _is_comparable(run, self.head, name)
            if is_comparable:
                self.comparable[name] = run
            elif is_comparable is False:
                self.incomparable.setdefault(name, run)

    def matches(self) -> tuple[Run, ...]:
        """The runs to compare with, oldest first, restricted to their benchmarks."""
        by_name = {**self.incomparable, **self.comparable}
        runs = (
            restricted_to(run, [name for name, match in by_name.items() if match is run])
            for run in sorted(self.searched, key=lambda run: run.started)
        )
        return tuple(run for run in runs if run.results)


def _provenance_notes(runs: tuple[Run, ...], head: Run, searched: list[Run]) -> Iterator[str]:
    """Describe the `runs` to compare with, or why there are none."""
    if not searched:
        yield "no earlier run: this is the first one"
    elif not runs:
        number = len(searched)
        subject = f"the {number} earlier runs have" if number > 1 else "the earlier run has"
        yield f"{subject} measured none of these benchmarks: nothing to compare yet"
    for number, run in enumerate(reversed(runs)):
        names = f", {listed([*run.results])}" if number else ""
        yield f"compared with {run.run_id} ({', '.join(_run_facts(run, head))}){names}"
    if runs and head.dirty:
        yield "this run's code has uncommitted changes"


def _run_facts(run: Run, head: Run) -> Iterator[str]:
    """Age, commit and uncommitted changes of the run."""
    yield _age(run.started, head.started)
    if run.commit:
        yield f"commit {short_commit(run.commit)}"
    if run.dirty:
        yield "uncommitted changes"


_UNITS: Final[Mapping[str, int]] = {"day": 86_400, "hour": 3600, "minute": 60, "second": 1}


def _age(earlier_time: str, later_time: str) -> str:
    """Time difference in the largest fitting unit: ``3 hours ago``; both in ISO 8601."""
    age = datetime.fromisoformat(later_time) - datetime.fromisoformat(earlier_time)
    seconds = age.total_seconds()
    unit = next((name for name, length in _UNITS.items() if seconds >= length), "second")
    return f"{counted(int(seconds // _UNITS[unit]), unit)} ago"
