"""The latest runs: those below the folder of runs, and those that the registry alone knows."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING

from gpubench_plugin.errors import RegistryError
from gpubench_plugin.results.reader import Overview, StoredRun
from gpubench_plugin.results.run_directory import RunDirectory, runs_in, tag_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from gpubench_plugin.results.registry import Registry


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Which runs are wanted; None: all. A `tag` may also be the word in a run's id."""

    experiment: str | None = None
    branch: str | None = None
    tag: str | None = None
    state: str | None = None

    def takes(self, run: Overview) -> bool:
        """Whether `run` is wanted."""
        return (
            self.experiment in {None, run.experiment}
            and self.branch in {None, run.branch}
            and self.state in {None, run.state}
            and (self.tag is None or self.tag in {*run.tags, tag_of(run.run_id)})
        )


def latest_runs(
    results_dir: Path, registry: Registry | None, *, wanted: Filter, limit: int | None
) -> tuple[list[Overview], list[str]]:
    """The latest runs that are wanted, the latest first, and lines for the user.

    Folders are looked into from the latest on, until there are `limit`.
    """
    directories = runs_in(results_dir)
    notes: list[str] = []
    elsewhere: list[Overview] = []
    if registry is not None:
        try:
            elsewhere = _elsewhere(registry, directories)
        except RegistryError as error:
            notes.append(f"runs of other machines are not listed: {error}")
    both = merge(_here(directories, wanted), elsewhere, key=lambda run: run.run_id, reverse=True)
    return list(islice((run for run in both if wanted.takes(run)), limit)), notes


def _here(directories: Sequence[RunDirectory], wanted: Filter) -> Iterator[Overview]:
    for directory in reversed(directories):
        if wanted.experiment in {None, directory.experiment}:
            yield StoredRun(directory).overview()


def _elsewhere(registry: Registry, directories: Sequence[RunDirectory]) -> list[Overview]:
    here = {directory.run_id for directory in directories}
    runs = (run for run in registry.runs() if run.run_id not in here)
    return sorted(runs, key=lambda run: run.run_id, reverse=True)
