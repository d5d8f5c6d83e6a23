"""Tables of runs and results."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the tables of runs, results, and shared facts."""
    op.create_table(
        "runs",
        sa.Column("key", _KEY, primary_key=True, autoincrement=True),
        sa.Column("run_id", sa.String(200), nullable=False, unique=True),
        sa.Column("experiment", sa.Text, nullable=False),
        sa.Column("started", sa.Text, nullable=False),
        sa.Column("started_us", sa.BigInteger, nullable=False),
        sa.Column("status", sa.Text),
        sa.Column("commit", sa.Text),
        sa.Column("branch", sa.Text),
        sa.Column("dirty", sa.Boolean),
        sa.Column("machine", sa.Text, nullable=False),
        sa.Column("environment", sa.Text, nullable=False),
        sa.Column("benchmarks", sa.Integer, nullable=False),
        sa.Column("measured", sa.Integer, nullable=False),
        sa.Column("regressed", sa.Boolean, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
    )
    op.create_index("ix_runs_started", "runs", ["started_us"])
    op.create_table(
        "facts",
        sa.Column("digest", sa.String(24), primary_key=True),
        sa.Column("facts", sa.JSON, nullable=False),
    )
    op.create_table(
        "benchmarks",
        sa.Column("digest", sa.String(24), primary_key=True),
        sa.Column("id", sa.Text, nullable=False),
    )
    _create_results()


def _create_results() -> None:
    op.create_table(
        "results",
        sa.Column("run", _KEY, sa.ForeignKey("runs.key", ondelete="CASCADE"), primary_key=True),
        sa.Column("ordinal", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("benchmark", sa.String(24), nullable=False),
        sa.Column("fingerprint", sa.String(24), nullable=False),
        sa.Column("branch", sa.String(200), nullable=False),
        sa.Column("started_us", sa.BigInteger, nullable=False),
        sa.Column("sample", sa.Boolean, nullable=False),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("timer", sa.Text, nullable=False),
        sa.Column("settings", sa.String(24), nullable=False),
        sa.Column("limits", sa.String(24), nullable=False),
        sa.Column("units", sa.String(24), nullable=False),
        sa.Column("flags", sa.JSON),
        sa.Column("metrics", sa.JSON, nullable=False),
        sa.Column("launches", sa.JSON),
    )
    for name, columns in {
        "ix_results_started": ["benchmark", "started_us"],
        "ix_results_branch": ["benchmark", "branch", "started_us"],
        "ix_results_fingerprint": ["fingerprint", "benchmark", "branch", "started_us"],
    }.items():
        op.create_index(name, "results", columns)
