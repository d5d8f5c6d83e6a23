"""Table definitions after the latest migration; a test compares both.

Values shared by many rows (machines, settings, limits, units) are in ``facts``, by digest.
``results`` has one row per benchmark of a run, with copies of all columns that queries filter and
sort by, so that each query reads one index.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
)

METADATA: Final = MetaData()

_KEY: Final = BigInteger().with_variant(Integer(), "sqlite")

RUNS: Final = Table(
    "runs",
    METADATA,
    Column("key", _KEY, primary_key=True, autoincrement=True),
    Column("run_id", String(200), nullable=False, unique=True),
    Column("experiment", Text, nullable=False),
    Column("started", Text, nullable=False),
    Column("started_us", BigInteger, nullable=False),  # since 1970, in UTC
    Column("status", Text),
    Column("commit", Text),
    Column("branch", Text),
    Column("dirty", Boolean),
    Column("machine", Text, nullable=False),
    Column("environment", Text, nullable=False),
    Column("benchmarks", Integer, nullable=False),
    Column("measured", Integer, nullable=False),
    Column("regressed", Boolean, nullable=False),
    Column("state", Text, nullable=False),  # digest of the files it was read from
    Index("ix_runs_started", "started_us"),
)

FACTS: Final = Table(
    "facts",
    METADATA,
    Column("digest", String(24), primary_key=True),
    Column("facts", JSON, nullable=False),
)

BENCHMARKS: Final = Table(
    "benchmarks",
    METADATA,
    Column("digest", String(24), primary_key=True),
    Column("id", Text, nullable=False),
)

RESULTS: Final = Table(
    "results",
    METADATA,
    Column("run", _KEY, ForeignKey("runs.key", ondelete="CASCADE"), primary_key=True),
    Column("ordinal", Integer, primary_key=True, autoincrement=False),
    Column("benchmark", String(24), nullable=False),
    Column("fingerprint", String(24), nullable=False),
    Column("branch", String(200), nullable=False),  # empty where there is none
    Column("started_us", BigInteger, nullable=False),
    Column("sample", Boolean, nullable=False),  # later runs may be compared with it
    Column("outcome", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("timer", Text, nullable=False),
    Column("settings", String(24), nullable=False),
    Column("limits", String(24), nullable=False),
    Column("units", String(24), nullable=False),  # of each metric its unit and direction
    Column("flags", JSON(none_as_null=True)),  # null for none, which costs no reading
    Column("metrics", JSON, nullable=False),  # {name: value}
    Column("launches", JSON(none_as_null=True)),  # [{name: value}], null for the only one
    Index("ix_results_started", "benchmark", "started_us"),
    Index("ix_results_branch", "benchmark", "branch", "started_us"),
    Index("ix_results_fingerprint", "fingerprint", "benchmark", "branch", "started_us"),
)

TAGS: Final = Table(
    "tags",
    METADATA,
    Column("run", _KEY, ForeignKey("runs.key", ondelete="CASCADE"), primary_key=True),
    Column("tag", String(200), primary_key=True),
    Index("ix_tags_tag", "tag"),
)

DOCUMENTS: Final = Table(
    "documents",
    METADATA,
    Column("kind", String(80), primary_key=True),
    Column("name", String(200), primary_key=True),
    Column("text", Text, nullable=False),
    Column("changed", Text, nullable=False),
)
