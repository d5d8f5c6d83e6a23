"""Tables: documents, which stay for ever, and an index that is derived from them.

The tables of the index have the version of their schema in their names: any change of them raises
:data:`SCHEMA`, and a client never touches those of another one. ``results`` has one row per
benchmark of a run, with copies of all columns that queries filter and sort by, so that each query
reads one index. What many rows share is in ``facts``, by digest.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    inspect,
)

from gpubench_plugin.core.errors import RegistryError
from gpubench_plugin.results.registry.database import lock

if TYPE_CHECKING:
    from gpubench_plugin.results.registry.database import Database

SCHEMA: Final = 1

METADATA: Final = MetaData()

_KEY: Final = BigInteger().with_variant(Integer(), "sqlite")

DOCUMENTS: Final = Table(
    "documents",  # without a version: these columns never change
    METADATA,
    Column("kind", String(80), primary_key=True),
    Column("name", String(200), primary_key=True),
    Column("digest", String(24), nullable=False),  # of the text
    Column("changed_us", BigInteger, nullable=False),  # since 1970: of a run its newest file
    Column("text", LargeBinary, nullable=False),  # deflated
    # Without it, listing the documents would read all texts.
    Index("ix_documents_digest", "kind", "name", "digest", "changed_us"),
)

RUNS: Final = Table(
    f"runs_{SCHEMA}",
    METADATA,
    Column("key", _KEY, primary_key=True, autoincrement=True),
    Column("run_id", String(200), nullable=False, unique=True),
    Column("digest", String(24), nullable=False),  # of the document
    Column("error", Text, nullable=False),  # why the document cannot be read
    Column("experiment", Text, nullable=False, default=""),
    Column("started", Text, nullable=False, default=""),
    Column("started_us", BigInteger, nullable=False, default=0),  # since 1970, in UTC
    Column("status", Text),
    Column("commit", Text),
    Column("branch", Text),
    Column("dirty", Boolean),
    Column("machine", String(24), nullable=False, default=""),  # digest of facts, as the next one
    Column("environment", String(24), nullable=False, default=""),
    Column("benchmarks", Integer, nullable=False, default=0),
    Column("measured", Integer, nullable=False, default=0),
    Column("regressed", Boolean, nullable=False, default=False),
    Column("tags", JSON, nullable=False, default=[]),
    Index(f"ix_runs_{SCHEMA}_started", "started_us"),
)

FACTS: Final = Table(
    f"facts_{SCHEMA}",
    METADATA,
    Column("digest", String(24), primary_key=True),
    Column("facts", Text, nullable=False),  # JSON
)

RESULTS: Final = Table(
    f"results_{SCHEMA}",
    METADATA,
    Column("run", _KEY, ForeignKey(RUNS.c.key, ondelete="CASCADE"), primary_key=True),
    Column("ordinal", Integer, primary_key=True, autoincrement=False),
    Column("benchmark", String(24), nullable=False),  # digest of its node id
    Column("fingerprint", String(24), nullable=False),
    Column("branch", String(200), nullable=False),  # empty where there is none
    Column("started_us", BigInteger, nullable=False),
    Column("sample", Boolean, nullable=False),  # later runs may be compared with it
    Column("record", String(24), nullable=False),  # digest of the facts beside the numbers
    Column("metrics", JSON, nullable=False),  # {name: value}
    Column("launches", JSON(none_as_null=True)),  # [{name: value}], null for the only one
    Index(f"ix_results_{SCHEMA}_started", "benchmark", "started_us"),
    Index(f"ix_results_{SCHEMA}_branch", "benchmark", "branch", "started_us"),
    Index(f"ix_results_{SCHEMA}_fingerprint", "fingerprint", "benchmark", "branch", "started_us"),
)

_OURS: Final = re.compile(r"(?:results|facts|runs)_\d+")


def create_missing(database: Database) -> None:
    """Create the tables that are missing; any number of processes may do so at once.

    Raises:
        RegistryError: the database holds only tables of something else, or it cannot be used.
    """
    with database.reading() as connection:
        existing = {*inspect(connection).get_table_names()}
    if METADATA.tables.keys() <= existing:
        return
    if existing and not any(map(_OURS.fullmatch, existing)):
        raise RegistryError(
            f"the registry {database.location.shown_name} contains foreign tables "
            f"({', '.join(sorted(existing)[:3])}); use a separate database for the registry"
        )
    database.enable_concurrent_reads()
    with database.writing() as connection:
        lock(connection, "gpubench tables")
        METADATA.create_all(connection)
