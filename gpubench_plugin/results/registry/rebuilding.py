"""The registry made anew from the run directories: all of it, or it stays as it was."""

from __future__ import annotations

import os
import re
import secrets
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sqlalchemy import delete, select
from sqlalchemy import text as statement
from sqlalchemy.exc import DatabaseError

from gpubench_plugin.environment import json_files, sync_folder
from gpubench_plugin.errors import RegistryError, ResultsError
from gpubench_plugin.results.registry import documents, ingest, schema
from gpubench_plugin.results.registry.database import Database
from gpubench_plugin.results.registry.ingest import read
from gpubench_plugin.results.registry.locations import FILE, PATIENCE_S, location
from gpubench_plugin.results.registry.rows import stored_text
from gpubench_plugin.results.registry.spool import Report, ended_runs
from gpubench_plugin.results.registry.tables import BENCHMARKS, FACTS, RESULTS, RUNS, TAGS
from gpubench_plugin.results.run_directory import runs_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sqlalchemy import Connection

    from gpubench_plugin.results.registry.locations import Location

    Merge = Callable[[Connection, Path, Report], None]

_DOCUMENTS = "0002"
"""The version from which on there are documents."""
_SQLITE = b"SQLite format 3\0"
"""What such a file begins with (https://www.sqlite.org/fileformat.html, 1.3)."""
_NOT_NOW = ("locked", "unable to open")
"""What SQLite says of a file that may be sound."""


@dataclass(frozen=True, kw_only=True)
class _Before:
    """What was stored before: ids of runs, and documents; `damage` is why they cannot be read."""

    runs: frozenset[str] = frozenset()
    documents: list[tuple[str, str, str, str]] = field(default_factory=list)
    damage: str = ""


def rebuild(
    url: str,
    results_dir: Path,
    *,
    merge_baselines: Merge,
    drop_missing: bool = False,
    patience_s: float = PATIENCE_S,
) -> Report:
    """Make the registry at `url` anew from the runs, tags and baselines below `results_dir`.

    `merge_baselines` merges the files of baselines below that folder into what is stored.

    A file is built beside the old one and put in its place; a server does it in one transaction.
    Documents of other machines stay. Others who would write meanwhile wait, and then spool. A
    damaged file is kept beside the new one.

    Raises:
        UsageProblem: the URL names no database that can be used.
        RegistryError: runs are stored whose directories are not here, and `drop_missing` is not
            set; or the database cannot be used now. It is as it was.
    """
    where = location(url, results_dir)
    with closing(Database.open(where, create=True, patience_s=patience_s)) as database:
        if where.file is None:
            return _in_place(database, results_dir, merge_baselines, drop_missing)
        with database.alone():
            return _new_file(database, where.file, results_dir, merge_baselines, drop_missing)


def _in_place(
    database: Database, results_dir: Path, merge_baselines: Merge, drop_missing: bool
) -> Report:
    schema.expect_current(database, create=True)
    with database.answering(), database.maintaining() as connection:
        connection.execute(statement("LOCK TABLE runs IN EXCLUSIVE MODE"))
        _refuse_missing(_before(connection), results_dir, drop_missing, database.location)
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
    before = _before_in_file(database)
    _refuse_missing(before, results_dir, drop_missing, database.location)
    for left in _unfinished(file):
        left.unlink(missing_ok=True)
    new = file.with_name(f"{file.name}.{secrets.token_hex(4)}.new")
    with database.answering():
        try:
            report = _filled_file(new, before, results_dir, merge_baselines, database)
            database.engine.dispose()
            if before.damage:
                report.notes += _kept_aside(file, before.damage)
            # What a writer left beside the old file would be taken for a part of the new one.
            for name in (f"{file.name}-wal", f"{file.name}-shm"):
                file.with_name(name).unlink(missing_ok=True)
            new.replace(file)
            sync_folder(file.parent)
        except BaseException:
            new.unlink(missing_ok=True)
            raise
    return report


def _kept_aside(file: Path, damage: str) -> list[str]:
    """Give a damaged `file` and its log a second name, under which they stay; lines that say so."""
    if not file.stat().st_size:
        return []
    aside = file.with_name(f"{file.name}.damaged-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}")
    for end in ("", "-wal"):
        with suppress(FileNotFoundError):
            _link(file.with_name(f"{file.name}{end}"), aside.with_name(f"{aside.name}{end}"))
    return [f"the old file was damaged ({damage}); it is kept as {aside}"]


def _link(file: Path, name: Path) -> None:
    try:
        os.link(file, name)
    except FileNotFoundError:
        raise
    except OSError:  # a file system without hard links
        file.rename(name)


def _unfinished(file: Path) -> list[Path]:
    """What rebuilds of `file` that were killed have left, by the names that they give."""
    ours = re.compile(re.escape(file.name) + r"\.[0-9a-f]{8}\.new(-wal|-shm|-journal)?")
    return [path for path in file.parent.iterdir() if ours.fullmatch(path.name) and path.is_file()]


def _filled_file(
    new: Path,
    before: _Before,
    results_dir: Path,
    merge_baselines: Merge,
    database: Database,
) -> Report:
    where = replace(database.location, file=new)
    with closing(Database.unlocked(where, patience_s=database.patience_s)) as built:
        schema.migrate(built)
        with built.maintaining() as connection:
            documents.restore(connection, before.documents)
            report = _fill(connection, results_dir, merge_baselines)
    with new.open("rb") as file:
        os.fsync(file.fileno())
    return report


def _fill(connection: Connection, results_dir: Path, merge_baselines: Merge) -> Report:
    report = Report()
    for directory in ended_runs(results_dir, report):
        try:
            report.stored += ingest.store(connection, directory.run_id, read(directory))
        except ResultsError as error:
            report.problems.append(str(error))
    merge_baselines(connection, results_dir, report)
    return report


def _before(connection: Connection, *, documented: bool = True) -> _Before:
    return _Before(
        runs=frozenset(map(stored_text, connection.execute(select(RUNS.c.run_id)).scalars())),
        documents=documents.every(connection) if documented else [],
    )


def _before_in_file(database: Database) -> _Before:
    """What the old file holds; of a damaged one nothing, which is why it is made anew."""
    try:
        with database.reading() as connection:
            version = schema.version_in(connection, database.location)
            if version in schema.VERSIONS:
                before = _before(connection, documented=version >= _DOCUMENTS)
                found = connection.execute(statement("PRAGMA integrity_check(1)")).scalar()
                return before if found == "ok" else replace(before, damage=_short(str(found)))
    except DatabaseError as error:
        if any(sign in str(error.orig) for sign in _NOT_NOW):
            with database.answering():
                raise
        return _damaged(database.location, str(error.orig))
    except json_files.MALFORMED as error:
        return _damaged(database.location, f"{type(error).__name__}: {error}")
    if version:
        raise RegistryError(f"the registry {database.location.shown}: {schema.other(version)}")
    return _Before()


def _damaged(where: Location, damage: str) -> _Before:
    """Nothing, of a damaged file that is ours: one that is called so, or at least an SQLite file.

    Raises:
        RegistryError: it is another file, which was named by mistake.
    """
    assert where.file is not None
    with where.file.open("rb") as file:
        head = file.read(len(_SQLITE))
    if head and head != _SQLITE and where.file.name != FILE:
        raise RegistryError(
            f"the registry {where.shown} is no SQLite file, and is left alone: move it away, or "
            "name another one with --registry"
        )
    return _Before(damage=_short(damage))


def _short(damage: str) -> str:
    return " ".join(damage.split())[:200]


def _refuse_missing(
    before: _Before, results_dir: Path, drop_missing: bool, where: Location
) -> None:
    missing = sorted(before.runs - {directory.run_id for directory in runs_in(results_dir)})
    if missing and not drop_missing:
        raise RegistryError(
            f"the registry {where.shown} holds {len(missing)} runs whose directories are not in "
            f"{results_dir} ({', '.join(missing[:3])}); they would be lost: 'gpubench db rebuild "
            "--drop-missing' does that"
        )
