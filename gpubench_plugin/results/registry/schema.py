"""The version of a database's tables: looked at when it is opened, changed by migrations only."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy import Connection, inspect, text
from sqlalchemy.exc import DBAPIError

from gpubench_plugin.errors import RegistryError

if TYPE_CHECKING:
    from gpubench_plugin.results.registry.database import Database
    from gpubench_plugin.results.registry.locations import Location

VERSIONS: Final = ("0001", "0002")
"""The migrations, in order; a test compares them with the files. Known without Alembic, whose
import costs as long as many queries."""

VERSION_TABLE: Final = "gpubench_schema"

_EMPTY: Final = ""
_MIGRATION: Final = 0x67707562656E6368
"""The advisory lock of PostgreSQL under which the tables are changed ("gpubench" in ASCII)."""


def expect_current(database: Database, *, create: bool) -> None:
    """Make sure that the tables are those this version knows; make them where there are none.

    Raises:
        RegistryError: they are older, newer or somebody else's, or the database does not answer.
    """
    version = version_of(database)
    if version == _EMPTY and create:
        migrate(database)
        return
    if version == VERSIONS[-1]:
        return
    raise RegistryError(f"the registry {database.location.shown}: {other(version)}")


def version_of(database: Database) -> str:
    """The version of the tables, empty where there are none at all.

    Raises:
        RegistryError: the tables are somebody else's, or the database does not answer.
    """
    with database.answering(), database.reading() as connection:
        try:
            return _version(connection)
        except DBAPIError:  # there is no such table, or worse
            connection.rollback()
            return version_in(connection, database.location)


def migrate(database: Database) -> bool:
    """Bring the tables up to date, one process at a time; whether there was anything to do.

    Raises:
        RegistryError: the tables are newer than this version knows, or somebody else's, or the
            database does not answer.
    """
    with database.answering(), database.alone():
        if database.location.file is not None:
            _prepare_file(database)
        with database.maintaining() as connection:
            if database.location.file is None:
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION})
            version = version_in(connection, database.location)
            if version == VERSIONS[-1]:
                return False
            if version not in {_EMPTY, *VERSIONS}:
                raise RegistryError(f"the registry {database.location.shown}: {other(version)}")
            upgrade(connection, VERSIONS[-1])
            return True


def upgrade(connection: Connection, version: str) -> None:
    """Run the migrations up to `version` in the transaction of `connection`."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    folder = str(Path(__file__).parent / "migrations")
    config.set_main_option("script_location", folder.replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, version)


def _prepare_file(database: Database) -> None:
    """Let readers go on while somebody writes; the file remembers it."""
    with database.engine.connect() as connection:
        driver = connection.connection.dbapi_connection
        assert driver is not None
        driver.execute("PRAGMA journal_mode = WAL")


def _version(connection: Connection) -> str:
    """What the table of the version holds; raises ValueError where that is no version."""
    found = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()
    if not isinstance(found, str) or not found:
        raise ValueError(f"the version of its schema is {found!r:.40}")
    return found


def version_in(connection: Connection, location: Location) -> str:
    """The version of the tables, empty where there are none at all.

    Raises:
        RegistryError: the tables are somebody else's.
    """
    tables = inspect(connection).get_table_names()
    if VERSION_TABLE in tables:
        return _version(connection)
    if not tables:
        return _EMPTY
    raise RegistryError(
        f"the registry {location.shown} holds tables of something else "
        f"({', '.join(sorted(tables)[:3])}); give the registry a database of its own"
    )


def other(version: str) -> str:
    """What is to be done about a version that is not the latest."""
    if version == _EMPTY:
        return "it is empty; 'gpubench db upgrade' makes its tables"
    if version in VERSIONS:
        return (
            f"its schema is {version}, this version of gpubench needs {VERSIONS[-1]}; "
            "run 'gpubench db upgrade'"
        )
    return (
        f"its schema {version!r} is newer than this version of gpubench knows ({VERSIONS[-1]}); "
        "upgrade pytest-gpubench"
    )
