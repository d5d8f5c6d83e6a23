"""Run list: local runs, and those known only to the registry."""

from __future__ import annotations

from heapq import merge
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING

from gpubench_plugin.core.errors import RegistryError
from gpubench_plugin.results.reader import RunOverview, RunReader
from gpubench_plugin.results.run_directory import runs_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gpubench_plugin.results.registry.registry import Registry


def latest_runs(
    results_dir: Path,
    registry: Registry | None,
    matches: Callable[[RunOverview], bool],
    *,
    experiment: str | None,
    limit: int | None,
) -> tuple[list[RunOverview], list[str]]:
    """Up to `limit` runs that match, newest first, and notes for the user.

    Of any `experiment` if that is None; runs here of others are not read.
    """
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
        if experiment in {None, directory.experiment}
    )
    remote.sort(key=attrgetter("run_id"), reverse=True)
    merged_runs = merge(local, remote, key=attrgetter("run_id"), reverse=True)
    return list(islice((run for run in merged_runs if matches(run)), limit)), notes
