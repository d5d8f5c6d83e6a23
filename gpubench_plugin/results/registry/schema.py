"""Schema version of the database, changed only by migrations."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy import Connection, inspect, text
from sqlalchemy.exc import DBAPIError

from gpubench_plugin.core.errors import RegistryError

if TYPE_CHECKING:
    from gpubench_plugin.results.registry.database import Database
    from gpubench_plugin.results.registry.locations import Location

VERSIONS: Final = ("0001", "0002")
"""Migrations in order; a test compares them with the files. Importing Alembic to list them takes as
long as many queries."""

VERSION_TABLE: Final = "gpubench_schema"

_EMPTY: Final = ""
_MIGRATION: Final = 0x67707562656E6368
"""PostgreSQL advisory lock of migrations ("gpubench" in ASCII)."""


def require_current(database: Database, *, create: bool) -> None:
    """Check that the tables have the current version; create them if missing.

    Raises:
        RegistryError: they are older, newer or foreign, or the database does not answer.
    """
    version = version_of(database)
    if version == _EMPTY and create:
        migrate(database)
        return
    if version == VERSIONS[-1]:
        return
    raise RegistryError(f"the registry {database.location.shown_name}: {advice(version)}")


def version_of(database: Database) -> str:
    """Schema version; empty without tables. Raises RegistryError."""
    with database.reading() as connection:
        try:
            return _version(connection)
        except DBAPIError:  # there is no such table, or worse
            connection.rollback()
            return version_in(connection, database.location)


def migrate(database: Database) -> bool:
    """Migrate under a lock; return whether anything was done.

    Raises:
        RegistryError: the tables are foreign or of a newer version, or the database cannot be used.
    """
    with database.readable_errors(), database.exclusive():
        if database.location.file is not None:
            _prepare_file(database)
        with database.writing(without_timeout=True) as connection:
            if database.location.file is None:
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION})
            version = version_in(connection, database.location)
            if version == VERSIONS[-1]:
                return False
            if version not in {_EMPTY, *VERSIONS}:
                raise RegistryError(
                    f"the registry {database.location.shown_name}: {advice(version)}"
                )
            upgrade(connection, VERSIONS[-1])
            return True


def upgrade(connection: Connection, version: str) -> None:
    """Run migrations up to `version` in the transaction of `connection`."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    folder = str(Path(__file__).parent / "migrations")
    config.set_main_option("script_location", folder.replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, version)


def _prepare_file(database: Database) -> None:
    """Enable WAL mode, so that readers and a writer do not block each other."""
    with database.engine.connect() as connection:
        driver = connection.connection.dbapi_connection
        assert driver is not None
        driver.execute("PRAGMA journal_mode = WAL")


def _version(connection: Connection) -> str:
    """Contents of the version table; raises ValueError if invalid."""
    stored_version = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()
    if not isinstance(stored_version, str) or not stored_version:
        raise ValueError(f"invalid schema version {stored_version!r:.40}")
    return stored_version


def version_in(connection: Connection, location: Location) -> str:
    """Schema version; empty without tables. Raises RegistryError for foreign tables."""
    tables = inspect(connection).get_table_names()
    if VERSION_TABLE in tables:
        return _version(connection)
    if not tables:
        return _EMPTY
    raise RegistryError(
        f"the registry {location.shown_name} contains foreign tables "
        f"({', '.join(sorted(tables)[:3])}); use a separate database for the registry"
    )


def advice(version: str) -> str:
    """Instructions for a version that is not the latest."""
    if version == _EMPTY:
        return "it is empty; 'gpubench db upgrade' creates its tables"
    if version in VERSIONS:
        return (
            f"its schema is {version}, but this gpubench needs {VERSIONS[-1]}; run 'gpubench "
            "db upgrade'"
        )
    return (
        f"its schema {version!r} is newer than this gpubench supports ({VERSIONS[-1]}); "
        "upgrade pytest-gpubench"
    )
