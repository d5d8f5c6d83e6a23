"""The course of a metric of a benchmark over runs, and where its level changes; it judges none."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Final

from gpubench_plugin.compare.changepoints import change_points
from gpubench_plugin.errors import GpubenchError, RegistryError
from gpubench_plugin.results.comparability import fingerprint_of
from gpubench_plugin.results.registry.rows import Point
from gpubench_plugin.results.search import runs_in
from gpubench_plugin.results.sources import run_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from gpubench_plugin.results.registry.registry import Registry
    from gpubench_plugin.runs import Run

_LOOKED_AT: Final = 20
"""Latest runs in which benchmarks are looked for by a part of their name."""


@dataclass(frozen=True, kw_only=True)
class LevelChange:
    """A new level begins at `point`, which is number `index` of its course.

    `before` and `after` are the medians of the levels, `change` the fraction by which they differ.
    """

    index: int
    point: Point
    before: float
    after: float

    @property
    def change(self) -> float | None:
        """after/before − 1; None where that is no number."""
        return self.after / self.before - 1 if self.before else None


@dataclass(frozen=True, kw_only=True)
class Course:
    """Comparable points, the oldest first: one machine, one configuration."""

    fingerprint: str
    points: tuple[Point, ...]
    changes: tuple[LevelChange, ...]


def courses(points: Sequence[Point]) -> list[Course]:
    """`points`, which are sorted by time, parted by fingerprint; the one used last comes last."""
    parted: dict[str, list[Point]] = {}
    for point in points:
        # Put in again at the end, so that the order is that of the last use.
        parted[point.fingerprint] = [*parted.pop(point.fingerprint, []), point]
    return [
        Course(fingerprint=fingerprint, points=tuple(own), changes=_changes(own))
        for fingerprint, own in parted.items()
    ]


class Past:
    """What was measured before: from the registry, else from the folders of the runs.

    `notes` says that it was the folders although a registry was expected.
    """

    def __init__(self, results_dir: Path, registry: Registry | None, note: str):
        self.notes = [f"without the registry: {note}"] if note else []
        self._results_dir = results_dir
        self._registry = registry
        self._runs: list[Run] | None = None
        self._stored: dict[str | None, list[Run]] = {}

    def benchmarks(self, branch: str | None) -> list[str]:
        """The benchmarks of the latest runs of the branch; None: of any."""
        return sorted({name for run in self._latest(branch) for name in run.results})

    def points(self, benchmark: str, metric: str, *, branch: str | None, limit: int) -> list[Point]:
        """The latest `limit` values, the oldest first."""
        if self._registry is not None:
            try:
                return self._registry.points(benchmark, metric, branch=branch, limit=limit)
            except RegistryError as error:
                self._give_up(error)
        found = (_point(run, benchmark, metric) for run in self._in_folders(branch))
        return [point for point in found if point is not None][-limit:]

    def metrics(self, benchmark: str, branch: str | None) -> list[str]:
        """The metrics that the latest runs have of the benchmark."""
        results = (run.results.get(benchmark) for run in self._latest(branch))
        return sorted({name for result in results if result for name in result.metrics})

    def _latest(self, branch: str | None) -> list[Run]:
        if self._registry is not None:
            try:
                if branch not in self._stored:
                    self._stored[branch] = list(self._latest_stored(self._registry, branch))
                return self._stored[branch]
            except RegistryError as error:
                self._give_up(error)
        return list(self._in_folders(branch))

    def _latest_stored(self, registry: Registry, branch: str | None) -> Iterator[Run]:
        for row in registry.runs(branch=branch, limit=_LOOKED_AT):
            if (run := registry.run(row.run_id)) is not None:
                yield run

    def _in_folders(self, branch: str | None) -> Iterator[Run]:
        if self._runs is None:
            self._runs = list(self._read())
        return (run for run in self._runs if branch in {None, run.branch})

    def _read(self) -> Iterator[Run]:
        for directory in runs_in(self._results_dir):
            try:
                yield run_in(directory)
            except GpubenchError as error:
                self.notes.append(f"left out: {error}")

    def _give_up(self, error: RegistryError) -> None:
        self._registry = None
        self.notes.append(f"without the registry: {error}")


def _changes(points: Sequence[Point]) -> tuple[LevelChange, ...]:
    values = [point.value for point in points]
    starts = [0, *change_points(values), len(values)]
    levels = [median(values[a:b]) for a, b in pairwise(starts)]
    return tuple(
        LevelChange(index=index, point=points[index], before=before, after=after)
        for index, before, after in zip(starts[1:-1], levels, levels[1:], strict=False)
    )


def _point(run: Run, benchmark: str, metric: str) -> Point | None:
    result = run.results.get(benchmark)
    number = result.metrics.get(metric) if result is not None else None
    if result is None or number is None:
        return None
    return Point(
        run_id=run.run_id,
        started=run.started,
        commit=run.commit,
        branch=run.branch,
        value=number.value,
        unit=number.unit,
        fingerprint=fingerprint_of(run.machine, result.settings),
    )
