"""What goes wrong with a database, in words a user can act on."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from gpubench_plugin.environment.json_files import MALFORMED
from gpubench_plugin.errors import RegistryError
from gpubench_plugin.results.registry.location import FILE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpubench_plugin.results.registry.location import Location

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
