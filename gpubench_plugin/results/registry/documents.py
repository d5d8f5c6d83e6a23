"""Documents of the registry: small texts shared between machines, such as baselines.

Writers merge their text with the stored one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from sqlalchemy import ColumnElement, Connection, delete, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from gpubench_plugin.core.errors import RegistryError
from gpubench_plugin.results.registry.rows import stored_text
from gpubench_plugin.results.registry.tables import DOCUMENTS
from gpubench_plugin.results.registry.texts import clean, indexed

ATTEMPTS: Final = 100
"""An attempt fails only if another writer succeeded, so this many would have to write at once."""


def merge(
    reading: Callable[[], AbstractContextManager[Connection]],
    writing: Callable[[], AbstractContextManager[Connection]],
    kind: str,
    name: str,
    merge_text: Callable[[str | None], tuple[str, str]],
) -> str | None:
    """Replace a document by the result of `merge_text`; return the old text.

    `merge_text` maps the stored text, or None, to the new one and its time (UTC, ISO 8601). It is
    called again if another writer replaced the text meanwhile.

    Raises:
        RegistryError: this failed :data:`ATTEMPTS` times.
    """
    for _ in range(ATTEMPTS):
        with reading() as connection:
            old_text = text_of(connection, kind, name)
        text, change_time = merge_text(old_text)
        if text == old_text:
            return old_text
        with writing() as connection:
            if _swap(connection, kind, name, old_text, text, change_time):
                return old_text
    raise RegistryError(f"the {kind} {name!r} was changed concurrently {ATTEMPTS} times")


def _swap(
    connection: Connection, kind: str, name: str, stored: str | None, text: str, changed: str
) -> bool:
    """Compare-and-swap: store `text` if `stored` is still current; return success."""
    values = {"text": clean(text), "changed": clean(changed)}
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    insertion = dialect.insert(DOCUMENTS).values(kind=indexed(kind), name=indexed(name), **values)
    # By the text, not by its time: two writers may have the same microsecond.
    is_stored = _matches(kind, name) & (DOCUMENTS.c.text == stored)
    replacement = update(DOCUMENTS).where(is_stored).values(values)
    statement = insertion.on_conflict_do_nothing() if stored is None else replacement
    return connection.execute(statement.returning(DOCUMENTS.c.name)).first() is not None


def text_of(connection: Connection, kind: str, name: str) -> str | None:
    """Text of a document, or None."""
    return connection.execute(select(DOCUMENTS.c.text).where(_matches(kind, name))).scalar()


def texts(connection: Connection, kind: str) -> dict[str, str]:
    """Documents of a kind, by name."""
    query = select(DOCUMENTS.c.name, DOCUMENTS.c.text).where(DOCUMENTS.c.kind == indexed(kind))
    rows = connection.execute(query.order_by(DOCUMENTS.c.name))
    return {stored_text(row.name): stored_text(row.text) for row in rows}


def remove(connection: Connection, kind: str, name: str) -> None:
    """Delete a document, if it exists."""
    connection.execute(delete(DOCUMENTS).where(_matches(kind, name)))


def all_documents(connection: Connection) -> list[tuple[str, str, str, str]]:
    """All documents: kind, name, text and time of the last change."""
    columns = (DOCUMENTS.c.kind, DOCUMENTS.c.name, DOCUMENTS.c.text, DOCUMENTS.c.changed)
    rows = (tuple(map(stored_text, row)) for row in connection.execute(select(*columns)))
    return [(kind, name, text, changed) for kind, name, text, changed in rows]


def restore(connection: Connection, documents: list[tuple[str, str, str, str]]) -> None:
    """Insert the result of :func:`all_documents` into an empty table."""
    rows = [dict(zip(DOCUMENTS.c.keys(), document, strict=True)) for document in documents]
    if rows:
        connection.execute(insert(DOCUMENTS), rows)


def _matches(kind: str, name: str) -> ColumnElement[bool]:
    return (DOCUMENTS.c.kind == indexed(kind)) & (DOCUMENTS.c.name == indexed(name))
