"""The last run, as ``--baseline=last`` has it: of each benchmark the latest comparable one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Final

from gpubench_plugin.compare.baselines.model import Reference
from gpubench_plugin.compare.comparability import Likeness, machine_differences
from gpubench_plugin.environment import counted, listed, short_commit
from gpubench_plugin.errors import GpubenchError, RegistryError
from gpubench_plugin.records import LAST, Run, RunStatus
from gpubench_plugin.results import StoredRun, runs_in

if TYPE_CHECKING:
    from pathlib import Path

    from gpubench_plugin.results.registry import Reachable, Registry


LOOKED_AT: Final = 50
"""Runs that are read, at most, for a benchmark that the latest ones have not measured."""

_ENDED: Final[frozenset[RunStatus | None]] = frozenset({"complete", "failed"})


def last_runs(head: Run, *, results_dir: Path, reached: Reachable) -> Reference:
    """The runs before `head` that have last measured its benchmarks, comparably.

    One of which a benchmark failed is as good for all others: else a suite with one that always
    fails would never be compared. One that was interrupted is not.

    Usually that is one run. A benchmark that it lacks, or measured with other settings, has the
    latest earlier one, also one that only the registry has; where none is comparable, the latest of
    this machine, of which the verdict then says what differs.
    """
    notes: list[str] = []
    search = _Search(head)
    search.through(_in_folders(results_dir, notes))
    if search.missing and reached.registry is not None:
        known = {directory.run_id for directory in runs_in(results_dir)}
        registered = _registered(reached.registry, notes)
        search.through(
            run
            for run in registered
            if run.run_id not in known and not machine_differences(run, head, ())
        )
    elif search.missing and reached.note:
        notes.append(f"only the runs in {results_dir} are seen: {reached.note}")
    runs = search.chosen()
    return Reference(
        label=LAST,
        kind="last" if runs else "missing",
        runs=runs,
        notes=(*notes, *_origins(runs, head, search.looked_at)),
    )


def _in_folders(results_dir: Path, notes: list[str]) -> Iterator[Run]:
    """The latest runs that have ended in order, the latest first."""
    ended = (one for one in reversed(runs_in(results_dir)) if one.summary.exists())
    for directory in islice(ended, LOOKED_AT):
        try:
            yield StoredRun(directory).run()
        except GpubenchError as error:
            notes.append(f"left out: {error}")


def _registered(registry: Registry, notes: list[str]) -> Iterator[Run]:
    """The latest runs of the registry, the latest first."""
    try:
        for overview in registry.runs(limit=LOOKED_AT):
            if (run := registry.run(overview.run_id)) is not None:
                yield run
    except RegistryError as error:
        notes.append(f"runs of the registry are not seen: {error}")


@dataclass
class _Search:
    """The benchmarks of `head`, each with the run that it is compared with.

    That is one of the `comparable` ones; of the `others` only where there is none.
    """

    head: Run
    looked_at: list[Run] = field(default_factory=list)
    comparable: dict[str, Run] = field(default_factory=dict)
    others: dict[str, Run] = field(default_factory=dict)
    likeness: Likeness = field(default_factory=lambda: Likeness(exempt=(), allow=False))

    @property
    def missing(self) -> list[str]:
        """The benchmarks of which no comparable run is known."""
        measured = (one.id for one in self.head.results.values() if one.outcome == "measured")
        return [name for name in measured if name not in self.comparable]

    def through(self, runs: Iterable[Run]) -> None:
        """Look at the `runs`, the latest first, as long as something is missing."""
        for run in runs:
            is_earlier = run.run_id != self.head.run_id and run.started < self.head.started
            if run.status in _ENDED and is_earlier:
                self.looked_at.append(run)
                self._look_at(run)
            if not self.missing:
                return

    def _look_at(self, run: Run) -> None:
        for name in self.missing:
            result = run.results.get(name)
            if result is None or result.outcome != "measured":
                continue
            if self.likeness.differences(run, result, self.head, self.head.results[name]):
                self.others.setdefault(name, run)
            else:
                self.comparable[name] = run

    def chosen(self) -> tuple[Run, ...]:
        """The runs that are compared with, oldest first, with what is compared and no more."""
        by_name = {**self.others, **self.comparable}
        runs = (
            replace(run, results={n: run.results[n] for n, of in by_name.items() if of is run})
            for run in sorted(self.looked_at, key=lambda run: run.started)
        )
        return tuple(run for run in runs if run.results)


def _origins(runs: tuple[Run, ...], head: Run, looked_at: list[Run]) -> Iterator[str]:
    """Which runs they are, or why there is none."""
    if not looked_at:
        yield "no earlier run here yet: this one will be the first"
    elif not runs:
        number = len(looked_at)
        earlier = (
            f"the {number} earlier runs here have" if number > 1 else "the earlier run here has"
        )
        yield f"{earlier} measured none of these benchmarks: this one will be the first"
    for number, run in enumerate(reversed(runs)):
        names = f", {listed([*run.results])}" if number else ""
        yield f"compared with {run.run_id} ({', '.join(_facts(run, head))}){names}"
    if runs and head.dirty:
        yield "this run's code has uncommitted changes"


def _facts(run: Run, head: Run) -> Iterator[str]:
    """Age, commit and changes of the run."""
    yield _age(run.started, head.started)
    if run.commit:
        yield f"commit {short_commit(run.commit)}"
    if run.dirty:
        yield "uncommitted changes"


_UNITS: Final[Mapping[str, int]] = {"day": 86_400, "hour": 3600, "minute": 60, "second": 1}


def _age(before: str, now: str) -> str:
    """How long ago in the largest unit that fits: ``3 hours ago``; both are in ISO 8601."""
    seconds = (datetime.fromisoformat(now) - datetime.fromisoformat(before)).total_seconds()
    unit = next((name for name, length in _UNITS.items() if seconds >= length), "second")
    number = int(seconds // _UNITS[unit])
    return f"{counted(number, unit)} ago"
