"""The connection to the registry's database: transactions, locks, timeouts, and readable errors.

Errors are in words that a user can act on.
"""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from pydantic_core import from_json
from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError

from gpubench_plugin.environment import MALFORMED, KernelLock
from gpubench_plugin.errors import RegistryError, UsageProblem
from gpubench_plugin.results.registry.locations import FILE, Location

_POLL_S: Final = 0.02
_TAKEN: Final = frozenset({errno.EAGAIN, errno.EACCES})


class FileLock:
    """The lock file at `path` beside an SQLite file, made where it is missing and never removed.

    It is shared while the database is open, and held alone while that is made anew. The kernel lets
    go with the process, however that ends. Where the file cannot be made, on a read-only disk, or
    the file system has no locks, there is none.
    """

    def __init__(self, path: Path):
        self._path = path
        self._lock: KernelLock | None = None

    def share(self, patience_s: float, location: Location) -> None:
        """Hold it together with others.

        Raises:
            RegistryError: somebody holds it alone for longer than `patience_s`.
        """
        self._hold(patience_s, location, shared=True)

    def take(self, patience_s: float, location: Location) -> None:
        """Hold it alone; between having shared it and this, others may have had it.

        Raises:
            RegistryError: others hold it for longer than `patience_s`.
        """
        if self._lock is not None:  # two that share it would wait for each other
            self._lock.release()
        self._hold(patience_s, location, shared=False)

    def close(self) -> None:
        """Let go; a second time does nothing."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _hold(self, patience_s: float, location: Location, *, shared: bool) -> None:
        if self._lock is None:
            try:
                self._lock = KernelLock(self._path, os.O_RDONLY | os.O_CREAT | os.O_NONBLOCK)
            except OSError:
                return  # the database itself will say what is wrong
        end = time.monotonic() + patience_s
        while True:
            try:
                self._lock.take(shared=shared)
            except OSError as error:
                if error.errno not in _TAKEN:
                    return
            else:
                return
            if time.monotonic() > end:
                raise RegistryError(
                    f"the registry {location.shown}: another process has it open, waited "
                    f"{patience_s:g} s"
                )
            time.sleep(_POLL_S)


REBUILD: Final = "it is damaged; 'gpubench db rebuild' makes it anew"

_OTHER_FILE: Final = "file is not a database"
_ELSEWHERE: Final = (
    "it is no SQLite file; if it was a registry, move it away: 'gpubench db rebuild' makes it anew"
)

_HINTS: Final = {
    "database is locked": "another process is writing it",
    "statement timeout": "it did not answer in time",
    "lock timeout": "another process is writing it",
    _OTHER_FILE: REBUILD,
    "malformed": REBUILD,
    "could not decode": REBUILD,
    "no such table": REBUILD,
    "no such column": REBUILD,
    "disk is full": "the disk is full",
    "disk i/o error": "the disk is full or broken",
    "readonly database": "it is read-only",
    "unable to open database file": "its folder is missing or cannot be written",
}


@contextmanager
def answering(location: Location) -> Iterator[None]:
    """Turn every error of the database into a :class:`RegistryError` without its password.

    So is what is raised where a value is of another type or form than it was stored in.
    """
    from sqlalchemy.exc import DBAPIError, SQLAlchemyError

    try:
        yield
    except DBAPIError as error:
        raise RegistryError(_said(location, str(error.orig))) from None
    except (SQLAlchemyError, sqlite3.Error, OSError) as error:  # what went past SQLAlchemy, too
        raise RegistryError(_said(location, str(error))) from None
    except MALFORMED as error:
        said = _said(location, f"{type(error).__name__}: {error}")
        raise RegistryError(f"{said:.400}; {REBUILD}") from error


def _said(location: Location, text: str) -> str:
    said = location.scrubbed(" ".join(text.split()))
    hint = next((hint for sign, hint in _HINTS.items() if sign in said.lower()), None)
    if _OTHER_FILE in said.lower() and location.file is not None and location.file.name != FILE:
        hint = _ELSEWHERE
    return f"the registry {location.shown}: {f'{hint} ({said})' if hint else said}"


_CONNECT_S: Final = 10
"""A server that does not answer for so long is down."""

_UNSEEN: Final = logging.NullHandler()
"""What psycopg raises it logs as well, which Python prints as it is where nobody listens."""


class Database:
    """An open database at `location`; `patience_s` is how long its locks are waited for."""

    def __init__(
        self, location: Location, engine: Engine, lock: FileLock | None, patience_s: float
    ):
        self.location = location
        self.engine = engine
        self.patience_s = patience_s
        self._lock = lock

    @classmethod
    def open(cls, location: Location, *, create: bool, patience_s: float) -> Database:
        """The database at `location`, without a look at what is in it.

        Raises:
            UsageProblem: the URL cannot be read.
            RegistryError: it is a file that is not there and not to be made, or somebody rebuilds
                it, or the driver is not installed.
        """
        if location.file is None:
            return cls(location, _postgresql(location, patience_s), None, patience_s)
        if location.file.exists() and not location.file.is_file():
            what = "a folder" if location.file.is_dir() else "no ordinary file"
            raise RegistryError(
                f"the registry {location.file} is {what}; it should be a file: remove it, or name "
                "another one with --registry"
            )
        if not create and not location.file.exists():
            raise RegistryError(
                f"there is no registry {location.file}; 'gpubench db ingest' makes it from the runs"
            )
        lock = FileLock(location.file.with_name(f"{location.file.name}.lock"))
        lock.share(patience_s, location)
        return cls(location, _sqlite(location, patience_s), lock, patience_s)

    @classmethod
    def unlocked(cls, location: Location, *, patience_s: float) -> Database:
        """The SQLite file at `location`, which no other process knows of."""
        return cls(location, _sqlite(location, patience_s), None, patience_s)

    def answering(self) -> AbstractContextManager[None]:
        """See :func:`answering`, of this database."""
        return answering(self.location)

    def reading(self) -> AbstractContextManager[Connection]:
        """A connection that sees one state of the database throughout."""
        return self.engine.connect()

    def writing(self) -> AbstractContextManager[Connection]:
        """A transaction; on SQLite nobody else writes meanwhile."""
        return self._transaction(gpubench_writes=True)

    def maintaining(self) -> AbstractContextManager[Connection]:
        """A transaction whose statements may take any time; on SQLite nobody else writes."""
        return self._transaction(gpubench_writes=True, gpubench_long=True)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """No other process has the SQLite file open meanwhile; a server needs no such thing."""
        if self._lock is None:
            yield
            return
        self.engine.dispose()
        self._lock.take(self.patience_s, self.location)
        try:
            yield
        finally:
            self._lock.share(self.patience_s, self.location)

    @contextmanager
    def _transaction(self, **options: bool) -> Iterator[Connection]:
        with self.engine.connect() as plain:
            connection = plain.execution_options(**options)
            with connection.begin():
                yield connection

    def close(self) -> None:
        """Let go of it; a second time does nothing."""
        self.engine.dispose()
        if self._lock is not None:
            self._lock.close()


def _engine(url: str | URL, **options: Any) -> Engine:
    # Reading JSON is most of what a query costs; this reader is several times faster than Python's.
    return create_engine(url, json_deserializer=from_json, **options)


def _sqlite(location: Location, patience_s: float) -> Engine:
    engine = _sqlite_engine(location, patience_s)

    @event.listens_for(engine, "connect")
    def connected(connection: Any, _: object) -> None:
        # Python's driver begins transactions late and without a lock; here BEGIN is ours.
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def begun(connection: Connection) -> None:
        # A transaction that reads first and then writes fails at once, however long it may wait.
        writes = connection.get_execution_options().get("gpubench_writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _sqlite_engine(location: Location, patience_s: float) -> Engine:
    assert location.file is not None
    wal = location.file.with_name(f"{location.file.name}-wal")
    writable = os.access(location.file, os.W_OK) and os.access(location.file.parent, os.W_OK)
    if writable or not location.file.exists() or wal.exists():
        url = URL.create("sqlite", database=str(location.file))
        return _engine(url, connect_args={"timeout": patience_s})
    # Even readers share a file in its folder; this says that nobody writes.
    name = f"file:{quote(str(location.file))}?immutable=1"
    return _engine("sqlite://", creator=lambda: sqlite3.connect(name, uri=True), poolclass=NullPool)


def _postgresql(location: Location, patience_s: float) -> Engine:
    logging.getLogger("psycopg").addHandler(_UNSEEN)
    try:
        url = make_url(location.url)
    except ArgumentError:
        raise UsageProblem(f"--registry: {location.shown!r} cannot be read as a URL") from None
    try:
        with answering(location):
            arguments = _patient(patience_s, url)
            engine = _engine(url, connect_args=arguments, use_native_hstore=False)
    except ImportError as error:
        raise RegistryError(
            f"the registry {location.shown} needs a driver: pip install "
            "'pytest-gpubench[postgresql]'"
        ) from error

    @event.listens_for(engine, "begin")
    def begun(connection: Connection) -> None:
        # For this transaction only: a connection pool between may give the next one to others.
        wait = max(1, round(patience_s * 1000))
        limit = 0 if connection.get_execution_options().get("gpubench_long") else 2 * wait
        connection.exec_driver_sql(
            f"SET LOCAL lock_timeout = {wait}; SET LOCAL statement_timeout = {limit}"
        )

    return engine


def _patient(patience_s: float, url: URL) -> dict[str, Any]:
    """How libpq notices a server that went away; what the URL says counts more."""
    asked: dict[str, Any] = {
        "connect_timeout": max(2, min(_CONNECT_S, round(patience_s))),
        "tcp_user_timeout": max(1, round(patience_s * 1000)),
        "application_name": f"gpubench {os.getpid()}",
    }
    # Prepared statements do not survive a pool that changes servers between transactions.
    return {k: v for k, v in asked.items() if k not in url.query} | {"prepare_threshold": None}
