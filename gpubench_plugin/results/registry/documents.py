"""Documents: the texts that the registry keeps for ever, by kind and name."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Table, delete, select, update
from sqlalchemy.dialects import postgresql, sqlite

from gpubench_plugin.core.errors import BrokenFile
from gpubench_plugin.core.records import Json
from gpubench_plugin.results.registry.tables import DOCUMENTS, RUNS

RUN: Final = "run"
"""Kind of the document of a run: its summary, verdicts and tags, by its id."""


def digest(text: str) -> str:
    """Digest of a text."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def read(connection: Connection, kind: str, name: str) -> str | None:
    """Text of a document, or None; raises BrokenFile."""
    text = connection.execute(select(DOCUMENTS.c.text).where(_is(kind, name))).scalar()
    try:
        return None if text is None else zlib.decompress(text).decode()
    except (zlib.error, ValueError) as error:
        raise BrokenFile(f"the registry's document of {kind} {name} is damaged: {error}") from None


def digest_of(connection: Connection, kind: str, name: str) -> str | None:
    """Digest of a document's text; None if there is no document."""
    return connection.execute(select(DOCUMENTS.c.digest).where(_is(kind, name))).scalar()


def names(connection: Connection, kind: str) -> list[str]:
    """Names of the documents of a kind."""
    query = select(DOCUMENTS.c.name).where(DOCUMENTS.c.kind == kind).order_by(DOCUMENTS.c.name)
    return [*connection.execute(query).scalars()]


def changes(connection: Connection, kind: str) -> Mapping[str, int]:
    """Time of the last change of each document of a kind, in microseconds since 1970."""
    query = select(DOCUMENTS.c.name, DOCUMENTS.c.changed_us).where(DOCUMENTS.c.kind == kind)
    return {row.name: row.changed_us for row in connection.execute(query)}


def swap(
    connection: Connection,
    kind: str,
    name: str,
    old: str | None,
    new: str,
    *,
    changed_us: int | None = None,
) -> bool:
    """Compare-and-swap: store the text `new` if `old`, or None, is still the stored one.

    Returns:
        Whether it was; else another writer was faster.
    """
    values: Json = {"digest": digest(new), "text": zlib.compress(new.encode())}
    if changed_us is not None:
        values["changed_us"] = changed_us
    if old is None:
        row = {"kind": kind, "name": name, "changed_us": 0, **values}
        statement = insert_missing(connection, DOCUMENTS).values(row).returning(DOCUMENTS.c.name)
        return connection.execute(statement).first() is not None
    is_current = _is(kind, name) & (DOCUMENTS.c.digest == digest(old))
    return connection.execute(update(DOCUMENTS).where(is_current).values(values)).rowcount == 1


def insert_missing(connection: Connection, table: Table) -> Any:
    """Statement that inserts into the `table` the rows whose keys it lacks."""
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    return dialect.insert(table).on_conflict_do_nothing()


def remove(connection: Connection, kind: str, name: str) -> None:
    """Delete a document, if it exists."""
    connection.execute(delete(DOCUMENTS).where(_is(kind, name)))


def touch(connection: Connection, kind: str, name: str, changed_us: int) -> None:
    """Note that what the document was read from is newer, but says the same."""
    is_older = _is(kind, name) & (DOCUMENTS.c.changed_us < changed_us)
    connection.execute(update(DOCUMENTS).where(is_older).values(changed_us=changed_us))


def not_indexed(connection: Connection) -> tuple[list[str], list[str]]:
    """Ids of runs whose document the index lacks, and of those that it has without a document."""
    same_name = (DOCUMENTS.c.kind == RUN) & (DOCUMENTS.c.name == RUNS.c.run_id)
    indexed = select(RUNS.c.key).where(same_name, RUNS.c.digest == DOCUMENTS.c.digest).exists()
    missing = select(DOCUMENTS.c.name).where(DOCUMENTS.c.kind == RUN, ~indexed)
    stale = select(RUNS.c.run_id).where(~select(DOCUMENTS.c.name).where(same_name).exists())
    return [*connection.execute(missing).scalars()], [*connection.execute(stale).scalars()]


def _is(kind: str, name: str) -> ColumnElement[bool]:
    return (DOCUMENTS.c.kind == kind) & (DOCUMENTS.c.name == name)
