"""Registry database connection: transactions, locks, timeouts, readable errors."""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from pydantic_core import from_json
from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError

from gpubench_plugin.core.errors import RegistryError, UsageProblem
from gpubench_plugin.environment.json_files import MALFORMED
from gpubench_plugin.environment.locks import KernelLock
from gpubench_plugin.results.registry.locations import FILE, Location

_POLL_S: Final = 0.02
"""Between prompt locking and idle polls: flock(2) has no timeout. Not measured."""
_TAKEN: Final = frozenset({errno.EAGAIN, errno.EACCES})


class FileLock:
    """Lock file beside an SQLite file, created on demand and never removed.

    Shared while the database is open, exclusive while it is rebuilt, released with the process. On
    a read-only disk or a file system without locks there is none.
    """

    def __init__(self, path: Path):
        self._path = path
        self._lock: KernelLock | None = None

    def close(self) -> None:
        """Release the lock; idempotent."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def acquire(self, timeout_s: float, location: Location, *, shared: bool = False) -> None:
        """Acquire an exclusive or `shared` lock; upgrading is not atomic.

        Raises:
            RegistryError: another process holds it for longer than `timeout_s`.
        """
        if self._lock is not None:
            if not shared:  # two that upgrade would wait for each other
                self._lock.release()
        else:
            try:
                self._lock = KernelLock(self._path, os.O_RDONLY | os.O_CREAT | os.O_NONBLOCK)
            except OSError:
                return  # opening the database reports the reason
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                self._lock.acquire(shared=shared)
            except OSError as error:
                if error.errno not in _TAKEN:
                    return
            else:
                return
            if time.monotonic() > deadline:
                raise RegistryError(
                    f"registry {location.shown_name}: another process has it open (waited "
                    f"{timeout_s:g} s)"
                )
            time.sleep(_POLL_S)


REBUILD: Final = "it is damaged; 'gpubench db rebuild' recreates it"

_OTHER_FILE: Final = "file is not a database"
_ELSEWHERE: Final = (
    "it is not an SQLite file; if it was a registry, move it away: 'gpubench db rebuild' "
    "recreates it"
)

_HINTS: Final = {
    "database is locked": "another process is writing it",
    "statement timeout": "it did not respond in time",
    "lock timeout": "another process is writing it",
    _OTHER_FILE: REBUILD,
    "malformed": REBUILD,
    "could not decode": REBUILD,
    "no such table": REBUILD,
    "no such column": REBUILD,
    "disk is full": "the disk is full",
    "disk i/o error": "the disk is full or broken",
    "readonly database": "it is read-only",
    "unable to open database file": "its folder is missing or not writable",
}


@contextmanager
def readable_errors(location: Location) -> Iterator[None]:
    """Convert database errors, and those of malformed values, to :class:`RegistryError`."""
    from sqlalchemy.exc import DBAPIError, SQLAlchemyError

    try:
        yield
    except DBAPIError as error:
        raise RegistryError(_error_text(location, str(error.orig))) from None
    except (SQLAlchemyError, sqlite3.Error, OSError) as error:  # also those that bypass SQLAlchemy
        raise RegistryError(_error_text(location, str(error))) from None
    except MALFORMED as error:
        message = _error_text(location, f"{type(error).__name__}: {error}")
        raise RegistryError(f"{message:.400}; {REBUILD}") from error


def _error_text(location: Location, text: str) -> str:
    message = location.redact(" ".join(text.split()))
    hint = next((hint for sign, hint in _HINTS.items() if sign in message.lower()), None)
    if _OTHER_FILE in message.lower() and location.file is not None and location.file.name != FILE:
        hint = _ELSEWHERE
    return f"the registry {location.shown_name}: {f'{hint} ({message})' if hint else message}"


_CONNECT_S: Final = 10
"""A server that does not answer for so long is considered down; not measured."""

_DISCARD: Final = logging.NullHandler()
"""psycopg also logs what it raises, which Python prints if there is no handler."""


class Database:
    """An open database at `location`, waiting at most `timeout_s` for locks."""

    def __init__(self, location: Location, engine: Engine, lock: FileLock | None, timeout_s: float):
        self.location = location
        self.engine = engine
        self.timeout_s = timeout_s
        self._lock = lock

    @classmethod
    def open(cls, location: Location, *, create: bool, timeout_s: float) -> Database:
        """Open the database at `location` without reading it.

        Raises:
            UsageProblem: the URL cannot be read.
            RegistryError: the file is missing and not to be created, or is being rebuilt, or the
                driver is not installed.
        """
        if location.file is None:
            return cls(location, _postgresql(location, timeout_s), None, timeout_s)
        if location.file.exists() and not location.file.is_file():
            description = "a folder" if location.file.is_dir() else "not a regular file"
            raise RegistryError(
                f"the registry {location.file} is {description} instead of a file: remove it, "
                "or choose another one with --registry"
            )
        if not create and not location.file.exists():
            raise RegistryError(
                f"the registry {location.file} does not exist; 'gpubench db ingest' creates "
                "it from the runs"
            )
        lock = FileLock(location.file.with_name(f"{location.file.name}.lock"))
        lock.acquire(timeout_s, location, shared=True)
        return cls(location, _sqlite(location, timeout_s), lock, timeout_s)

    @classmethod
    def open_private(cls, file: Path, location: Location, *, timeout_s: float) -> Database:
        """Open a private SQLite `file` without locking; errors name `location`."""
        return cls(location, _sqlite(replace(location, file=file), timeout_s), None, timeout_s)

    def readable_errors(self) -> AbstractContextManager[None]:
        """:func:`readable_errors` for this database."""
        return readable_errors(self.location)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection with a consistent snapshot."""
        with self.readable_errors(), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self, *, without_timeout: bool = False) -> Iterator[Connection]:
        """A write transaction; on SQLite exclusive."""
        with self.readable_errors(), self.engine.connect() as connection:
            connection.execution_options(gpubench_writes=True, gpubench_long=without_timeout)
            with connection.begin():
                yield connection

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Exclusive access to the SQLite file; a no-op for a server."""
        if self._lock is None:
            yield
            return
        self.engine.dispose()
        self._lock.acquire(self.timeout_s, self.location)
        try:
            yield
        finally:
            self._lock.acquire(self.timeout_s, self.location, shared=True)

    def close(self) -> None:
        """Close the database; idempotent."""
        self.engine.dispose()
        if self._lock is not None:
            self._lock.close()


def _engine(url: str | URL, **options: Any) -> Engine:
    # Parsing JSON takes most of a query; pydantic's parser is several times as fast as Python's.
    return create_engine(url, json_deserializer=from_json, **options)


def _sqlite(location: Location, timeout_s: float) -> Engine:
    engine = _sqlite_engine(location, timeout_s)

    @event.listens_for(engine, "connect")
    def on_connect(connection: Any, _: object) -> None:
        # Python's driver begins transactions late and without a lock; SQLAlchemy's pysqlite dialect
        # documents this workaround.
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def on_begin(connection: Connection) -> None:
        # SQLite refuses to upgrade a read transaction while another writes, whatever the timeout.
        writes = connection.get_execution_options().get("gpubench_writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _sqlite_engine(location: Location, timeout_s: float) -> Engine:
    assert location.file is not None
    wal = location.file.with_name(f"{location.file.name}-wal")
    is_writable = os.access(location.file, os.W_OK) and os.access(location.file.parent, os.W_OK)
    if is_writable or not location.file.exists() or wal.exists():
        url = URL.create("sqlite", database=str(location.file))
        return _engine(url, connect_args={"timeout": timeout_s})
    # Readers of a WAL database write to its folder too, unless it is declared immutable.
    name = f"file:{quote(str(location.file))}?immutable=1"
    return _engine("sqlite://", creator=lambda: sqlite3.connect(name, uri=True), poolclass=NullPool)


def _postgresql(location: Location, timeout_s: float) -> Engine:
    logging.getLogger("psycopg").addHandler(_DISCARD)
    try:
        url = make_url(location.url)
    except ArgumentError:
        raise UsageProblem(f"--registry: {location.shown_name!r} is not a valid URL") from None
    try:
        with readable_errors(location):
            arguments = _keepalive_args(timeout_s, url)
            engine = _engine(url, connect_args=arguments, use_native_hstore=False)
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


def _keepalive_args(timeout_s: float, url: URL) -> dict[str, Any]:
    """Keepalive settings of libpq; those in the URL take precedence."""
    connect_args: dict[str, Any] = {
        "connect_timeout": max(2, min(_CONNECT_S, round(timeout_s))),  # libpq: at least 2 s
        "tcp_user_timeout": max(1, round(timeout_s * 1000)),
        "application_name": f"gpubench {os.getpid()}",
    }
    # Prepared statements do not survive a pooler that switches servers between transactions.
    return {k: v for k, v in connect_args.items() if k not in url.query} | {
        "prepare_threshold": None
    }
