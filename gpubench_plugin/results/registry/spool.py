"""The spool: runs that wait to be stored, a marker for each in ``<results>/.spool/``.

The marker is written before the database is asked and removed when it has answered, so a run that
was cut off in between, or met a database that was down, is stored at the next opportunity. All runs
below a folder are stored by :func:`ingest_all`.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from gpubench_plugin.environment import json_files
from gpubench_plugin.errors import GpubenchError, ResultsError
from gpubench_plugin.results.reader import is_being_written
from gpubench_plugin.results.registry.locations import NONE, PATIENCE_S, Location, location
from gpubench_plugin.results.run_directory import RunDirectory, runs_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from gpubench_plugin.results.registry.registry import Registry


FOLDER: Final = ".spool"
SCHEMA_VERSION: Final = 1

_BACKLOG_S: Final = 10.0
"""The end of a session stores what waited before it for no longer than this; the rest waits on."""


@dataclass(frozen=True, kw_only=True)
class Marker:
    """A waiting run: its marker's file and its directory."""

    file: Path
    directory: RunDirectory

    def remove(self) -> None:
        """The run waits no longer."""
        with suppress(OSError):
            self.file.unlink(missing_ok=True)


def keep(
    url: str, results_dir: Path, directory: RunDirectory, *, patience_s: float = PATIENCE_S
) -> str | None:
    """Store the run in `directory`, and those that waited; never raises.

    Returns:
        None where it was stored, or nothing is to be stored (`url` is ``none``); else one line for
        the user: why not, and that the run waits.
    """
    if url == NONE:
        return None
    try:
        where = location(url, results_dir)
        marker = _mark(where, results_dir, directory)
    except (GpubenchError, OSError) as error:
        return f"registry: the run was not stored and does not wait ({error}); {_BY_HAND}"
    try:
        from gpubench_plugin.results.registry.registry import Registry

        with Registry.open(url, results_dir, patience_s=patience_s) as registry:
            registry.ingest(directory)
            marker.remove()
            forget_lost(where, results_dir)
            _store_backlog(registry, waiting(where, results_dir))
    except Exception as error:  # whatever it is, the benchmarks are measured and written down
        said = str(error) if isinstance(error, GpubenchError) else where.scrubbed(repr(error))
        if not marker.file.exists():
            return None
        return f"registry: {_one_line(said)}; the run waits in {marker.file.parent}, {_BY_HAND}"
    return None


_BY_HAND: Final = "the next run or 'gpubench db ingest' stores it"


def waiting(where: Location, results_dir: Path) -> list[Marker]:
    """The runs below `results_dir` that wait for the database `where`, the oldest first."""
    return [marker for marker in _markers(where, results_dir) if marker.directory.journal.is_file()]


def forget_lost(where: Location, results_dir: Path) -> None:
    """Remove the markers whose runs are gone."""
    for marker in _markers(where, results_dir):
        if not marker.directory.journal.is_file():
            marker.remove()


def remove_marker(where: Location, results_dir: Path, directory: RunDirectory) -> None:
    """Let a run wait no longer for the database `where`."""
    _marker(where, results_dir, directory).remove()


def _store_backlog(registry: Registry, markers: Iterable[Marker]) -> None:
    end = time.monotonic() + _BACKLOG_S
    for marker in markers:
        if time.monotonic() > end:
            return
        with suppress(ResultsError):  # 'gpubench db check' names a run that cannot be read
            registry.ingest(marker.directory)
            marker.remove()


def _mark(where: Location, results_dir: Path, directory: RunDirectory) -> Marker:
    marker = _marker(where, results_dir, directory)
    marker.file.parent.mkdir(exist_ok=True)
    named = f"{directory.experiment}/{directory.run_id}"
    json_files.write_json(
        marker.file, {"schema_version": SCHEMA_VERSION, "run": named, "registry": where.shown}
    )
    return marker


def _marker(where: Location, results_dir: Path, directory: RunDirectory) -> Marker:
    file = results_dir / FOLDER / f"{directory.run_id}.{where.key}.json"
    return Marker(file=file, directory=directory)


def _markers(where: Location, results_dir: Path) -> list[Marker]:
    files = sorted((results_dir / FOLDER).glob(f"*.{where.key}.json"))
    marked = ((file, _marked(file, results_dir)) for file in files if not file.is_symlink())
    return [Marker(file=file, directory=run) for file, run in marked if run is not None]


def _marked(file: Path, results_dir: Path) -> RunDirectory | None:
    """The run that a marker names; None where the file is no marker, which is left alone."""
    try:
        marker = json_files.load(file, limit=json_files.LIMIT_OF_LABELS_BYTES)
        experiment, run_id = marker["run"].split("/")
    except (GpubenchError, *json_files.MALFORMED):
        return None
    return RunDirectory(path=results_dir / experiment / run_id)


def _one_line(text: str) -> str:
    return " ".join(text.split())


@dataclass(kw_only=True)
class Report:
    """What was done or found: runs `stored` or `unchanged`, and `problems` to solve.

    `written` counts those that a session is writing just now: they are stored when it ends. `notes`
    are further lines for the user.
    """

    stored: int = 0
    unchanged: int = 0
    written: int = 0
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def ingest_all(registry: Registry, url: str, results_dir: Path) -> Report:
    """Store every run below `results_dir` that is not stored as it is now.

    Raises:
        RegistryError: the database cannot be used now; what was stored before stays.
    """
    from gpubench_plugin.results.registry.ingest import state_of

    report = Report()
    where = location(url, results_dir)
    forget_lost(where, results_dir)
    states = registry.states([directory.run_id for directory in runs_in(results_dir)])
    for directory in ended_runs(results_dir, report):
        try:
            known = states.get(directory.run_id) == state_of(directory)
            stored = not known and registry.ingest(directory)
        except ResultsError as error:
            report.problems.append(str(error))
            continue
        report.stored += stored
        report.unchanged += not stored
        remove_marker(where, results_dir, directory)
    return report


def ended_runs(results_dir: Path, report: Report) -> Iterator[RunDirectory]:
    """The runs below `results_dir` that nobody is writing; the others are counted in `report`."""
    for directory in runs_in(results_dir):
        if is_being_written(directory):
            report.written += 1
        else:
            yield directory
