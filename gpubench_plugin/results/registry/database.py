"""Connection to the registry's database: transactions, timeouts, readable errors."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from pydantic_core import from_json
from sqlalchemy import (
    URL,
    Connection,
    Engine,
    NullPool,
    StaticPool,
    create_engine,
    event,
    make_url,
    text,
)
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from gpubench_plugin.core.errors import RegistryError, UsageProblem
from gpubench_plugin.results.registry.locations import Location
from gpubench_plugin.system.json_files import MALFORMED

_DAMAGED: Final = (
    "it is damaged, or not a registry: move it away; 'gpubench db ingest' makes a new one from the "
    "runs"
)

_HINTS: Final = {
    "database is locked": "another process is writing it",
    "statement timeout": "it did not respond in time",
    "lock timeout": "another process is writing it",
    "malformed value": "its index is damaged: 'gpubench db rebuild' makes a new one",
    **dict.fromkeys(("file is not a database", "malformed", "could not decode"), _DAMAGED),
    "disk i/o error": "the disk is full or broken",
    "readonly database": "it is read-only",
    "unable to open database file": "its folder is missing or not writable",
}


@contextmanager
def readable_errors(location: Location) -> Iterator[None]:
    """Convert database errors, and those of an index with malformed values, to RegistryError."""
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error, OSError) as error:  # also those that bypass SQLAlchemy
        raise _unusable(location, str(getattr(error, "orig", error))) from None
    except MALFORMED as error:
        raise _unusable(location, f"malformed value: {type(error).__name__}: {error}") from error


def _unusable(location: Location, text: str) -> RegistryError:
    message = location.redact(" ".join(text.split()))[:400]
    hint = next((hint for sign, hint in _HINTS.items() if sign in message.lower()), None)
    return RegistryError(
        f"the registry {location.shown_name}: {f'{hint} ({message})' if hint else message}"
    )


_CONNECT_S: Final = 10
"""A server that does not answer for so long is considered down."""


class Database:
    """An open database at `location`."""

    def __init__(self, location: Location, engine: Engine):
        self.location = location
        self.engine = engine

    @classmethod
    def open(cls, location: Location, *, create: bool, timeout_s: float) -> Database:
        """Open the database at `location` without reading it, to wait `timeout_s` for locks.

        Raises:
            UsageProblem: the URL cannot be read.
            RegistryError: the file is missing and not to be created, or is no file, or the driver
                is not installed.
        """
        file = location.file
        if file is None:
            return cls(location, _postgresql(location, timeout_s))
        with readable_errors(location):
            if file.exists() and not file.is_file():
                raise RegistryError(
                    f"the registry {file} is not a regular file: remove it, or choose another one "
                    "with --registry"
                )
            if not create and not file.exists():
                raise RegistryError(
                    f"the registry {file} does not exist; 'gpubench db ingest' creates it from the "
                    "runs"
                )
            return cls(location, _sqlite(file, timeout_s))

    @classmethod
    def in_memory(cls) -> Database:
        """An empty SQLite database in this process."""
        location = Location(url="sqlite://", file=Path("in memory"))
        return cls(location, _with_own_transactions(_engine("sqlite://", poolclass=StaticPool)))

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection with a consistent snapshot."""
        with readable_errors(self.location), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self, *, without_timeout: bool = False) -> Iterator[Connection]:
        """A write transaction; on SQLite exclusive."""
        with readable_errors(self.location), self.engine.connect() as connection:
            connection.execution_options(gpubench_writes=True, gpubench_long=without_timeout)
            with connection.begin():
                yield connection

    def enable_concurrent_reads(self) -> None:
        """Let readers and a writer not block each other: SQLite's WAL mode, which is kept."""
        if self.engine.dialect.name != "sqlite":
            return
        with readable_errors(self.location), self.engine.connect() as connection:
            driver: Any = connection.connection.dbapi_connection
            try:
                driver.execute("PRAGMA journal_mode = WAL")  # not possible in a transaction
            except sqlite3.OperationalError as error:  # of two that begin at once, one does it
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                    raise

    def close(self) -> None:
        """Close the database; idempotent."""
        self.engine.dispose()


def lock(connection: Connection, name: str) -> None:
    """Lock `name` against other writers until the transaction ends; SQLite has only one."""
    if connection.dialect.name == "postgresql":
        query = text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))")
        connection.execute(query, {"name": name})


def _engine(url: str | URL, **options: Any) -> Engine:
    # Parsing JSON takes most of a query; pydantic's parser is several times as fast as Python's.
    return create_engine(url, json_deserializer=from_json, **options)


def _sqlite(file: Path, timeout_s: float) -> Engine:
    wal = file.with_name(f"{file.name}-wal")
    is_writable = os.access(file, os.W_OK) and os.access(file.parent, os.W_OK)
    if is_writable or not file.exists() or wal.exists():
        url = URL.create("sqlite", database=str(file))
        return _with_own_transactions(_engine(url, connect_args={"timeout": timeout_s}))
    # Readers of a WAL database write to its folder too, unless it is declared immutable.
    name = f"file:{quote(str(file))}?immutable=1"
    return _with_own_transactions(
        _engine("sqlite://", creator=lambda: sqlite3.connect(name, uri=True), poolclass=NullPool)
    )


def _with_own_transactions(engine: Engine) -> Engine:
    # Python's driver begins transactions late and without a lock; SQLAlchemy's pysqlite dialect
    # documents this workaround.
    @event.listens_for(engine, "connect")
    def on_connect(connection: Any, _: object) -> None:
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def on_begin(connection: Connection) -> None:
        # SQLite refuses to upgrade a read transaction while another writes, whatever the timeout.
        writes = connection.get_execution_options().get("gpubench_writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _postgresql(location: Location, timeout_s: float) -> Engine:
    # psycopg also logs what it raises, which Python prints if there is no handler.
    logging.getLogger("psycopg").addHandler(logging.NullHandler())
    try:
        url = make_url(location.url)
    except ArgumentError:
        raise UsageProblem(f"--registry: {location.shown_name!r} is not a valid URL") from None
    settings = {
        "connect_timeout": str(max(2, min(_CONNECT_S, round(timeout_s)))),  # libpq: at least 2 s
        "tcp_user_timeout": str(max(1, round(timeout_s * 1000))),
        "application_name": f"gpubench {os.getpid()}",
        **url.query,
    }
    # Prepared statements do not survive a pooler that switches servers between transactions.
    options: Any = {"connect_args": {"prepare_threshold": None}, "use_native_hstore": False}
    try:
        with readable_errors(location):
            engine = _engine(url.set(query=settings), **options)
    except ImportError as error:
        raise RegistryError(
            f"the registry {location.shown_name} needs a driver: pip install "
            "'pytest-gpubench[postgresql]'"
        ) from error

    @event.listens_for(engine, "begin")
    def on_begin(connection: Connection) -> None:
        # For this transaction only: a pooler in between may reuse the connection for others.
        lock_ms = max(1, round(timeout_s * 1000))
        # A statement may wait for a lock and then take as long itself.
        statement_ms = 0 if connection.get_execution_options().get("gpubench_long") else 2 * lock_ms
        connection.exec_driver_sql(
            f"SET LOCAL lock_timeout = {lock_ms}; SET LOCAL statement_timeout = {statement_ms}"
        )

    return engine
