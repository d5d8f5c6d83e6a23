"""The last run, as ``--baseline=last`` has it: of each benchmark the latest comparable one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

from gpubench_plugin.compare.comparability import Likeness, machine_differences
from gpubench_plugin.environment import listed
from gpubench_plugin.errors import GpubenchError, RegistryError
from gpubench_plugin.results import Filter, RunDirectory, run_in, runs_from_latest

if TYPE_CHECKING:
    from pathlib import Path

    from gpubench_plugin.records import Run
    from gpubench_plugin.results import Overview
    from gpubench_plugin.results.registry import Reachable, Registry


LOOKED_AT: Final = 50
"""Complete runs that are read, at most, for a benchmark that the latest ones have not measured."""

_SHORT: Final = 9
"""Characters of a commit that are shown."""


@dataclass(frozen=True, kw_only=True)
class LastRuns:
    """The `runs`, oldest first, each with the results it is compared by, and lines for the user."""

    runs: tuple[Run, ...]
    notes: tuple[str, ...]


def last_runs(head: Run, *, results_dir: Path, reached: Reachable) -> LastRuns:
    """The complete runs before `head` that have last measured its benchmarks, comparably.

    Usually that is one run. A benchmark that it lacks, or measured with other settings, has the
    latest earlier one; where none is comparable, the latest of this machine, of which the verdict
    then says what differs.
    """
    runs, notes = runs_from_latest(results_dir, reached.registry, wanted=Filter(state="complete"))
    search = _Search(head, reached.registry, notes)
    if reached.note:
        notes.append(
            f"without the registry, only the runs in {results_dir} are seen: {reached.note}"
        )
    for overview in runs:
        if overview.run_id == head.run_id or overview.started >= head.started:
            continue
        if not search.goes_on:
            break
        search.look_at(overview)
    return search.ended()


@dataclass
class _Search:
    head: Run
    registry: Registry | None
    notes: list[str]
    looked_at: list[Run] = field(default_factory=list)
    comparable: dict[str, Run] = field(default_factory=dict)
    others: dict[str, Run] = field(default_factory=dict)
    likeness: Likeness = field(default_factory=lambda: Likeness(exempt=(), allow=False))

    @property
    def missing(self) -> list[str]:
        """The benchmarks of the head of which no comparable run is known."""
        measured = (one.id for one in self.head.results.values() if one.outcome == "measured")
        return [name for name in measured if name not in self.comparable]

    @property
    def goes_on(self) -> bool:
        """Whether another run may tell more; that too many would have to be read is noted."""
        if not self.missing:
            return False
        if len(self.looked_at) < LOOKED_AT:
            return True
        self.notes.append(
            f"only the latest {LOOKED_AT} complete runs were looked at for {listed(self.missing)}"
        )
        return False

    def look_at(self, overview: Overview) -> None:
        """Take from the run what is missing so far."""
        run = self._read(overview)
        if run is None:
            return
        self.looked_at.append(run)
        for name in self.missing:
            result = run.results.get(name)
            if result is None or result.outcome != "measured":
                continue
            if self.likeness.differences(run, result, self.head, self.head.results[name]):
                self.others.setdefault(name, run)
            else:
                self.comparable[name] = run

    def ended(self) -> LastRuns:
        """What was found, and which run it is."""
        chosen = {**self.others, **self.comparable}
        runs = [
            replace(run, results={n: run.results[n] for n, of in chosen.items() if of is run})
            for run in reversed(self.looked_at)
        ]
        used = tuple(run for run in runs if run.results)
        return LastRuns(runs=used, notes=(*self.notes, *self._origins(used)))

    def _read(self, overview: Overview) -> Run | None:
        """The run in its folder; of the registry's only those of machines such as this one."""
        try:
            if overview.path is not None:
                return run_in(RunDirectory(path=overview.path))
            run = self.registry.run(overview.run_id) if self.registry is not None else None
        except RegistryError as error:
            self.notes.append(f"the run {overview.run_id}: {error}")
            self.registry = None
            return None
        except GpubenchError as error:
            self.notes.append(f"left out: {error}")
            return None
        return None if run is None or machine_differences(run, self.head, ()) else run

    def _origins(self, runs: tuple[Run, ...]) -> Iterator[str]:
        """Which runs they are, or why there is none."""
        if not self.looked_at:
            yield "no earlier run here yet: this one will be the first"
        elif not runs:
            number = len(self.looked_at)
            those = (
                "the earlier run here has"
                if number == 1
                else f"the {number} earlier runs here have"
            )
            yield f"{those} measured none of these benchmarks: this one will be the first"
        for number, run in enumerate(reversed(runs)):
            names = f", {listed([*run.results])}" if number else ""
            yield f"compared with {run.run_id} ({', '.join(_facts(run, self.head))}){names}"
        if runs and self.head.dirty:
            yield "this run's code has uncommitted changes"


def _facts(run: Run, head: Run) -> Iterator[str]:
    """Age, commit and changes of the run."""
    yield _age(run.started, head.started)
    if run.commit:
        yield f"commit {run.commit[:_SHORT]}"
    if run.dirty:
        yield "uncommitted changes"


_UNITS: Final[Mapping[str, int]] = {"day": 86_400, "hour": 3600, "minute": 60, "second": 1}


def _age(before: str, now: str) -> str:
    """How long ago in the largest unit that fits: ``3 hours ago``; both are in ISO 8601."""
    seconds = (datetime.fromisoformat(now) - datetime.fromisoformat(before)).total_seconds()
    unit = next((name for name, length in _UNITS.items() if seconds >= length), "second")
    number = int(seconds // _UNITS[unit])
    return f"{number} {unit}{'s' * (number != 1)} ago"
