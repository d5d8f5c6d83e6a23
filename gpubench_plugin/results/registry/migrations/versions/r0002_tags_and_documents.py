"""Tables of tags, and of documents shared between machines (baselines)."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create both tables."""
    op.create_table(
        "tags",
        sa.Column("run", _KEY, sa.ForeignKey("runs.key", ondelete="CASCADE"), primary_key=True),
        sa.Column("tag", sa.String(200), primary_key=True),
    )
    op.create_index("ix_tags_tag", "tags", ["tag"])
    op.create_table(
        "documents",
        sa.Column("kind", sa.String(80), primary_key=True),
        sa.Column("name", sa.String(200), primary_key=True),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("changed", sa.Text, nullable=False),
    )
