"""Atomic rebuild of the registry from the run directories."""

from __future__ import annotations

import os
import re
import secrets
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import delete, select
from sqlalchemy import text as statement
from sqlalchemy.exc import DatabaseError

from gpubench_plugin.core.errors import RegistryError, ResultsError
from gpubench_plugin.core.words import counted, listed
from gpubench_plugin.environment import json_files
from gpubench_plugin.environment.files import sync_folder
from gpubench_plugin.results.registry import documents, ingest, schema
from gpubench_plugin.results.registry.database import Database
from gpubench_plugin.results.registry.ingest import read
from gpubench_plugin.results.registry.locations import FILE, TIMEOUT_S, location
from gpubench_plugin.results.registry.rows import stored_text
from gpubench_plugin.results.registry.spool import Report, finished_runs
from gpubench_plugin.results.registry.tables import BENCHMARKS, FACTS, RESULTS, RUNS, TAGS
from gpubench_plugin.results.run_directory import runs_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

    from gpubench_plugin.results.registry.locations import Location

    Merge = Callable[[Connection, Path, Report], None]

_DOCUMENTS = "0002"
"""First schema version with documents."""
_SQLITE = b"SQLite format 3\0"
"""Header of an SQLite file (https://www.sqlite.org/fileformat.html, 1.3)."""
_TEMPORARY = ("locked", "unable to open")
"""Errors of SQLite for an undamaged file."""


@dataclass(frozen=True, kw_only=True)
class _PreviousContents:
    """Previous contents: run ids and documents; `damage` if unreadable."""

    runs: frozenset[str] = frozenset()
    documents: list[tuple[str, str, str, str]] = field(default_factory=list)
    damage: str = ""


def rebuild(
    url: str,
    results_dir: Path,
    *,
    merge_baselines: Merge,
    drop_missing: bool = False,
    timeout_s: float = TIMEOUT_S,
) -> Report:
    """Rebuild the registry at `url` from the runs, tags and baselines below `results_dir`.

    `merge_baselines` merges the baseline files into the stored ones. Documents of other machines
    stay. A file is built beside the old one and replaces it; a server does it in one transaction.
    Other writers wait, then spool. A damaged file is kept as a backup.

    Raises:
        UsageProblem: the URL is invalid or unsupported.
        RegistryError: the database, which is unchanged, cannot be used now, or has runs whose
            directories are missing and `drop_missing` is not set.
    """
    target = location(url, results_dir)
    with closing(Database.open(target, create=True, timeout_s=timeout_s)) as database:
        if target.file is None:
            return _in_place(database, results_dir, merge_baselines, drop_missing)
        with database.exclusive():
            return _new_file(database, target.file, results_dir, merge_baselines, drop_missing)


def _in_place(
    database: Database, results_dir: Path, merge_baselines: Merge, drop_missing: bool
) -> Report:
    schema.require_current(database, create=True)
    with database.writing(without_timeout=True) as connection:
        connection.execute(statement("LOCK TABLE runs IN EXCLUSIVE MODE"))
        _refuse_missing(_read_previous(connection), results_dir, drop_missing, database.location)
        for table in (RESULTS, TAGS, RUNS, FACTS, BENCHMARKS):
            connection.execute(delete(table))
        return _fill(connection, results_dir, merge_baselines)


def _new_file(
    database: Database,
    file: Path,
    results_dir: Path,
    merge_baselines: Merge,
    drop_missing: bool,
) -> Report:
    previous = _previous_in_file(database)
    _refuse_missing(previous, results_dir, drop_missing, database.location)
    for leftover in _leftovers(file):
        leftover.unlink(missing_ok=True)
    new_path = file.with_name(f"{file.name}.{secrets.token_hex(4)}.new")
    with database.readable_errors():
        try:
            with closing(
                Database.open_private(new_path, database.location, timeout_s=database.timeout_s)
            ) as built:
                schema.migrate(built)
                with built.writing(without_timeout=True) as connection:
                    documents.restore(connection, previous.documents)
                    report = _fill(connection, results_dir, merge_baselines)
            with new_path.open("rb") as new_file:
                os.fsync(new_file.fileno())
            database.engine.dispose()
            if previous.damage:
                report.notes += _back_up_damaged(file, previous.damage)
            # SQLite would apply a log of the old file to the new one.
            for suffix in ("-wal", "-shm"):
                Path(f"{file}{suffix}").unlink(missing_ok=True)
            new_path.replace(file)
            sync_folder(file.parent)
        except BaseException:
            new_path.unlink(missing_ok=True)
            raise
    return report


def _back_up_damaged(file: Path, damage: str) -> list[str]:
    """Rename a damaged `file` and its log; return messages."""
    if not file.stat().st_size:
        return []
    backup = file.with_name(f"{file.name}.damaged-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}")
    for suffix in ("", "-wal"):
        with suppress(FileNotFoundError):
            _link(Path(f"{file}{suffix}"), Path(f"{backup}{suffix}"))
    return [f"the old file was damaged ({damage}) and is kept as {backup}"]


def _link(file: Path, name: Path) -> None:
    try:
        os.link(file, name)
    except FileNotFoundError:
        raise
    except OSError:  # a file system without hard links
        file.rename(name)


def _leftovers(file: Path) -> list[Path]:
    """Leftover files of killed rebuilds of `file`."""
    pattern = re.compile(re.escape(file.name) + r"\.[0-9a-f]{8}\.new(-wal|-shm|-journal)?")
    return [
        path for path in file.parent.iterdir() if pattern.fullmatch(path.name) and path.is_file()
    ]


def _fill(connection: Connection, results_dir: Path, merge_baselines: Merge) -> Report:
    report = Report()
    for directory in finished_runs(results_dir, report):
        try:
            report.stored += ingest.store(connection, directory.run_id, read(directory))
        except ResultsError as error:
            report.errors.append(str(error))
    merge_baselines(connection, results_dir, report)
    return report


def _read_previous(connection: Connection, *, documented: bool = True) -> _PreviousContents:
    return _PreviousContents(
        runs=frozenset(map(stored_text, connection.execute(select(RUNS.c.run_id)).scalars())),
        documents=documents.all_documents(connection) if documented else [],
    )


def _previous_in_file(database: Database) -> _PreviousContents:
    """Previous contents of the file; empty if damaged."""
    try:
        with database.engine.connect() as connection:
            version = schema.version_in(connection, database.location)
            if version in schema.VERSIONS:
                previous = _read_previous(connection, documented=version >= _DOCUMENTS)
                integrity = connection.execute(statement("PRAGMA integrity_check(1)")).scalar()
                damage = "" if integrity == "ok" else _short(str(integrity))
                return replace(previous, damage=damage)
    except DatabaseError as error:
        if any(sign in str(error.orig) for sign in _TEMPORARY):
            with database.readable_errors():
                raise
        return _damaged(database.location, str(error.orig))
    except json_files.MALFORMED as error:
        return _damaged(database.location, f"{type(error).__name__}: {error}")
    if version:
        raise RegistryError(
            f"the registry {database.location.shown_name}: {schema.advice(version)}"
        )
    return _PreviousContents()


def _damaged(url: Location, damage: str) -> _PreviousContents:
    """Empty contents of a damaged registry file; raises RegistryError for another kind of file."""
    assert url.file is not None
    with url.file.open("rb") as file:
        head = file.read(len(_SQLITE))
    if head and head != _SQLITE and url.file.name != FILE:
        raise RegistryError(
            f"the registry {url.shown_name} is not an SQLite file and is left unchanged: move "
            "it away, or choose another one with --registry"
        )
    return _PreviousContents(damage=_short(damage))


def _short(damage: str) -> str:
    return " ".join(damage.split())[:200]


def _refuse_missing(
    previous: _PreviousContents, results_dir: Path, drop_missing: bool, url: Location
) -> None:
    lost_runs = sorted(previous.runs - {directory.run_id for directory in runs_in(results_dir)})
    if lost_runs and not drop_missing:
        raise RegistryError(
            f"the registry {url.shown_name} contains {counted(len(lost_runs), 'run')} without a "
            f"directory in {results_dir} ({listed(lost_runs, 3)}); a rebuild would lose them: "
            "'gpubench db rebuild --drop-missing' does so anyway"
        )
