"""All runs below a folder stored, and those of them that wait."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpubench_plugin.errors import ResultsError
from gpubench_plugin.results.reader import is_being_written
from gpubench_plugin.results.registry import spool
from gpubench_plugin.results.registry.location import location
from gpubench_plugin.results.registry.reading import state_of
from gpubench_plugin.results.search import runs_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gpubench_plugin.results.registry.registry import Registry
    from gpubench_plugin.results.run_directory import RunDirectory


@dataclass(kw_only=True)
class Stored:
    """How many runs were `stored`, how many were there already, and what could not be read.

    `written` counts those that a session is writing just now: they are stored when it ends. `notes`
    are further lines for the user.
    """

    stored: int = 0
    unchanged: int = 0
    written: int = 0
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def ingest_all(registry: Registry, url: str, results_dir: Path) -> Stored:
    """Store every run below `results_dir` that is not stored as it is now.

    Raises:
        RegistryError: the database cannot be used now; what was stored before stays.
    """
    told = Stored()
    where = location(url, results_dir)
    spool.forget_lost(where, results_dir)
    states = registry.states([directory.run_id for directory in runs_in(results_dir)])
    for directory in ended_runs(results_dir, told):
        try:
            known = states.get(directory.run_id) == state_of(directory)
            stored = not known and registry.ingest(directory)
        except ResultsError as error:
            told.problems.append(str(error))
            continue
        told.stored += stored
        told.unchanged += not stored
        spool.remove_marker(where, results_dir, directory)
    return told


def ended_runs(results_dir: Path, told: Stored) -> Iterator[RunDirectory]:
    """The runs below `results_dir` that nobody is writing; the others are counted in `told`."""
    for directory in runs_in(results_dir):
        if is_being_written(directory):
            told.written += 1
        else:
            yield directory
