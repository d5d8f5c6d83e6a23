"""Alembic environment: runs migrations inside the caller's transaction and lock."""

from alembic import context

from gpubench_plugin.results.registry.schema import VERSION_TABLE

context.configure(connection=context.config.attributes["connection"], version_table=VERSION_TABLE)
context.run_migrations()
