"""Small texts that machines share, baselines for example; of two, the one changed later counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import select
from sqlalchemy.dialects import postgresql, sqlite

from gpubench_plugin.results.registry import restoring
from gpubench_plugin.results.registry.ingest import clean, indexed
from gpubench_plugin.results.registry.tables import DOCUMENTS

if TYPE_CHECKING:
    from sqlalchemy import Connection


def put(connection: Connection, kind: str, name: str, text: str, changed: str) -> None:
    """Store `text` unless a text that was `changed` later is there."""
    values = {
        "kind": indexed(kind),
        "name": indexed(name),
        "text": clean(text),
        "changed": clean(changed),
    }
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    new = dialect.insert(DOCUMENTS).values(values)
    connection.execute(
        new.on_conflict_do_update(
            index_elements=[DOCUMENTS.c.kind, DOCUMENTS.c.name],
            set_={"text": new.excluded.text, "changed": new.excluded.changed},
            where=DOCUMENTS.c.changed <= new.excluded.changed,
        )
    )


def texts(connection: Connection, kind: str) -> dict[str, str]:
    """The texts of a kind by name."""
    query = select(DOCUMENTS.c.name, DOCUMENTS.c.text).where(DOCUMENTS.c.kind == indexed(kind))
    rows = connection.execute(query.order_by(DOCUMENTS.c.name))
    return {restoring.text(row.name): restoring.text(row.text) for row in rows}


def stored(connection: Connection) -> list[tuple[str, str, str, str]]:
    """Every document: kind, name, text and when it was changed."""
    columns = (DOCUMENTS.c.kind, DOCUMENTS.c.name, DOCUMENTS.c.text, DOCUMENTS.c.changed)
    rows = (tuple(map(restoring.text, row)) for row in connection.execute(select(*columns)))
    return [(kind, name, text, changed) for kind, name, text, changed in rows]
