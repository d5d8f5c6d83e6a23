"""Spool of runs waiting to be stored: one marker each in ``<results>/.spool/``.

A marker is written before a run is stored and removed afterwards, so a run is stored at the next
opportunity after a crash or a database failure. :func:`ingest_all` stores all runs of a folder.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from gpubench_plugin.core.errors import GpubenchError, ResultsError
from gpubench_plugin.environment import json_files
from gpubench_plugin.results.reader import is_being_written
from gpubench_plugin.results.registry.locations import NONE, TIMEOUT_S, Location, location
from gpubench_plugin.results.run_directory import RunDirectory, runs_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from gpubench_plugin.results.registry.registry import Registry


FOLDER: Final = ".spool"
SCHEMA_VERSION: Final = 1

_BACKLOG_S: Final = 10.0
"""Limit for storing the backlog at the end of a session; not measured."""


@dataclass(frozen=True, kw_only=True)
class Marker:
    """A waiting run: marker file and run directory."""

    file: Path
    directory: RunDirectory

    def remove(self) -> None:
        """Remove the marker."""
        with suppress(OSError):
            self.file.unlink(missing_ok=True)


def store_or_spool(
    url: str, results_dir: Path, directory: RunDirectory, *, timeout_s: float = TIMEOUT_S
) -> str | None:
    """Store the run in `directory` and the backlog; never raises.

    Returns:
        None if stored or disabled (`url` is ``none``), else one line for the user with the reason.
    """
    if url == NONE:
        return None
    try:
        target = location(url, results_dir)
        marker = _mark(target, results_dir, directory)
    except (GpubenchError, OSError) as error:
        return f"registry: the run was neither stored nor queued ({error}); {_BY_HAND}"
    try:
        from gpubench_plugin.results.registry.registry import Registry

        with Registry.open(url, results_dir, timeout_s=timeout_s) as registry:
            registry.ingest(directory)
            marker.remove()
            remove_stale_markers(target, results_dir)
            _store_backlog(registry, pending(target, results_dir))
    except Exception as error:  # whatever it is, the results are already recorded
        message = str(error) if isinstance(error, GpubenchError) else target.redact(repr(error))
        if not marker.file.exists():
            return None
        return (
            f"registry: {_one_line(message)}; the run is queued in {marker.file.parent}, {_BY_HAND}"
        )
    return None


_BY_HAND: Final = "the next run or 'gpubench db ingest' stores it"


def pending(url: Location, results_dir: Path) -> list[Marker]:
    """Runs below `results_dir` waiting for the database `url`, oldest first."""
    return [marker for marker in _markers(url, results_dir) if marker.directory.journal.is_file()]


def remove_stale_markers(url: Location, results_dir: Path) -> None:
    """Remove markers of deleted runs."""
    for marker in _markers(url, results_dir):
        if not marker.directory.journal.is_file():
            marker.remove()


def remove_marker(url: Location, results_dir: Path, directory: RunDirectory) -> None:
    """Remove a run's marker for the database `url`."""
    _marker(url, results_dir, directory).remove()


def _store_backlog(registry: Registry, markers: Iterable[Marker]) -> None:
    deadline = time.monotonic() + _BACKLOG_S
    for marker in markers:
        if time.monotonic() > deadline:
            return
        with suppress(ResultsError):  # 'gpubench db check' lists unreadable runs
            registry.ingest(marker.directory)
            marker.remove()


def _mark(url: Location, results_dir: Path, directory: RunDirectory) -> Marker:
    marker = _marker(url, results_dir, directory)
    marker.file.parent.mkdir(exist_ok=True)
    marker_text = f"{directory.experiment}/{directory.run_id}"
    json_files.write_json(
        marker.file,
        {"schema_version": SCHEMA_VERSION, "run": marker_text, "registry": url.shown_name},
    )
    return marker


def _marker(url: Location, results_dir: Path, directory: RunDirectory) -> Marker:
    file = results_dir / FOLDER / f"{directory.run_id}.{url.key}.json"
    return Marker(file=file, directory=directory)


def _markers(url: Location, results_dir: Path) -> list[Marker]:
    files = sorted((results_dir / FOLDER).glob(f"*.{url.key}.json"))
    parsed = ((file, _parse_marker(file, results_dir)) for file in files if not file.is_symlink())
    return [Marker(file=file, directory=run) for file, run in parsed if run is not None]


def _parse_marker(file: Path, results_dir: Path) -> RunDirectory | None:
    """Run named by a marker; None if the file is not a marker."""
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
    """Numbers of runs stored, unchanged or still in progress, errors to fix, and notes."""

    stored: int = 0
    unchanged: int = 0
    in_progress: int = 0
    errors: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def ingest_all(registry: Registry, url: str, results_dir: Path) -> Report:
    """Store every run below `results_dir` that is new or changed.

    Raises:
        RegistryError: the database cannot be used now; what was stored before stays.
    """
    from gpubench_plugin.results.registry.ingest import state_of

    report = Report()
    target = location(url, results_dir)
    remove_stale_markers(target, results_dir)
    states = registry.states([directory.run_id for directory in runs_in(results_dir)])
    for directory in finished_runs(results_dir, report):
        try:
            is_current = states.get(directory.run_id) == state_of(directory)
            was_stored = not is_current and registry.ingest(directory)
        except ResultsError as error:
            report.errors.append(str(error))
            continue
        report.stored += was_stored
        report.unchanged += not was_stored
        remove_marker(target, results_dir, directory)
    return report


def finished_runs(results_dir: Path, report: Report) -> Iterator[RunDirectory]:
    """Runs below `results_dir` that are not in progress; others are counted in `report`."""
    for directory in runs_in(results_dir):
        if is_being_written(directory):
            report.in_progress += 1
        else:
            yield directory
