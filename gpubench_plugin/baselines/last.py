"""``--baseline=last``: the latest comparable run of each benchmark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import islice
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
    if none is comparable, the latest incomparable one, whose verdict says what differs. What else
    the comparable runs have stays in the latest of them, to show what existed.
    """
    notes: list[str] = []
    measured = [result.id for result in head.results.values() if result.outcome == "measured"]
    here = LastResults(ended_here(results_dir, LOOKED_AT, notes))
    matches, searched = here.runs_with(head, measured), here.runs
    missing = [name for name in measured if name not in matches]
    if missing and connection.registry is not None:
        elsewhere = LastResults(_of_equal_machines(connection.registry, head, results_dir))
        matches |= elsewhere.runs_with(head, missing)
        searched = [*searched, *elsewhere.runs]
    elif missing and connection.error:
        notes.append(f"only runs in {results_dir} are considered: {connection.error}")
    incomparable = {n: run for run in reversed(searched) for n in missing if n in run.measured}
    comparable = {run.run_id: run for run in matches.values()}
    existed = {name: comparable[i] for i in sorted(comparable) for name in comparable[i].results}
    by_name = {**existed, **incomparable, **matches}
    restricted = (
        restricted_to(run, [name for name, match in by_name.items() if match is run])
        for run in sorted(searched, key=lambda run: run.started)
    )
    runs = tuple(run for run in restricted if run.results)
    return Reference(
        label=LAST,
        kind="last" if runs else "missing",
        runs=runs,
        notes=(*notes, *(_provenance_notes(runs, head, len(searched)) if measured else ())),
    )


def ended_here(results_dir: Path, limit: int, notes: list[str]) -> Iterator[Run]:
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
    """The last comparable result of each benchmark among `unread` runs, newest first.

    Each is read once, when needed. Those of run directories need no registry, whose libraries take
    memory that a CPU's numbers include.
    """

    def __init__(self, unread: Iterator[Run]):
        self._unread = unread
        self.runs: list[Run] = []
        """Those read so far that ended before the head began."""

    def of(self, head: Run, name: str) -> Result | None:
        """The latest earlier result that is comparable with benchmark `name` of `head`."""
        run = self.runs_with(head, [name]).get(name)
        return None if run is None else run.results[name]

    def runs_with(self, head: Run, names: Iterable[str]) -> dict[str, Run]:
        """The latest earlier run with a comparable result of each of `names` that has one."""
        earlier = {
            name: next(
                (run for run in self._earlier(head) if _is_comparable(run, head, name)), None
            )
            for name in names
        }
        return {name: run for name, run in earlier.items() if run is not None}

    def _earlier(self, head: Run) -> Iterator[Run]:
        yield from self.runs
        for run in self._unread:
            is_earlier = run.run_id != head.run_id and run.started < head.started
            if run.status in _ENDED and is_earlier:
                self.runs.append(run)
                yield run


def _is_comparable(run: Run, head: Run, name: str) -> bool:
    """Whether the run has measured benchmark `name`, comparably with the head."""
    comparability = Comparability(exempt=(), allow=False)
    return name in run.measured and not comparability.differences(
        run, run.results[name], head, head.results[name]
    )


def _provenance_notes(runs: tuple[Run, ...], head: Run, searched: int) -> Iterator[str]:
    """Describe the `runs` to compare with, or why there are none."""
    if not searched:
        yield "no earlier run: this is the first one"
    elif not runs:
        subject = f"the {searched} earlier runs have" if searched > 1 else "the earlier run has"
        yield f"{subject} measured none of these benchmarks: nothing to compare yet"
    for number, run in enumerate(reversed(runs)):
        names = f", {listed([n for n in run.results if n in head.measured])}" if number else ""
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
