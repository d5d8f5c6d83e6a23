"""Run list: local runs, and those known only to the registry."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import merge
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING

from gpubench_plugin.core.errors import RegistryError
from gpubench_plugin.results.reader import RunOverview, RunReader
from gpubench_plugin.results.run_directory import runs_in, tag_of

if TYPE_CHECKING:
    from pathlib import Path

    from gpubench_plugin.results.registry.registry import Registry


@dataclass(frozen=True, kw_only=True)
class RunFilter:
    """Run filter; None means any. A `tag` also matches text in a run id."""

    experiment: str | None = None
    branch: str | None = None
    tag: str | None = None
    state: str | None = None

    def matches(self, run: RunOverview) -> bool:
        """Whether `run` satisfies every criterion."""
        return (
            self.experiment in {None, run.experiment}
            and self.branch in {None, run.branch}
            and self.state in {None, run.state}
            and (self.tag is None or self.tag in {*run.tags, tag_of(run.run_id)})
        )


def latest_runs(
    results_dir: Path, registry: Registry | None, *, filter: RunFilter, limit: int | None
) -> tuple[list[RunOverview], list[str]]:
    """Up to `limit` matching runs, newest first, and notes for the user."""
    directories = runs_in(results_dir)
    notes: list[str] = []
    registered: dict[str, RunOverview] = {}
    if registry is not None:
        try:
            registered = {run.run_id: run for run in registry.runs()}
        except RegistryError as error:
            notes.append(f"runs of other machines are unavailable: {error}")
    local_ids = {directory.run_id for directory in directories}
    remote = [run for run_id, run in registered.items() if run_id not in local_ids]
    local = (
        RunReader(directory).overview(registered.get(directory.run_id))
        for directory in reversed(directories)
        if filter.experiment in {None, directory.experiment}
    )
    remote.sort(key=attrgetter("run_id"), reverse=True)
    merged_runs = merge(local, remote, key=attrgetter("run_id"), reverse=True)
    return list(islice((run for run in merged_runs if filter.matches(run)), limit)), notes
