"""Tests of the tables and the migrations that make them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

from gpubench_plugin.results.registry import schema
from gpubench_plugin.results.registry.tables import METADATA


def test_versions_are_the_migrations() -> None:
    """The versions that are known without Alembic are those of the files, in one line."""
    config = Config()
    config.set_main_option("script_location", str(Path(schema.__file__).parent / "migrations"))
    scripts = ScriptDirectory.from_config(config)
    revisions = [script.revision for script in scripts.walk_revisions()]
    assert tuple(reversed(revisions)) == schema.VERSIONS


def test_migrations_make_the_tables_that_queries_know(backend: Any) -> None:
    """Nothing is made beside the migrations, and they make all of it."""
    backend.open().close()
    engine = create_engine(backend.url or f"sqlite:///{backend.results_dir / 'registry.sqlite'}")
    with engine.connect() as connection:
        options = {"version_table": schema.VERSION_TABLE, "compare_type": True}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, METADATA) == []
    engine.dispose()


@pytest.mark.slow
def test_alembic_is_imported_only_to_change_tables(results_dir: Path) -> None:
    """Opening a registry of this version costs no import of Alembic, its modules cost nothing."""
    program = (
        "import sys; from pathlib import Path\n"
        "from gpubench_plugin.results.registry import connection, spool\n"
        "assert not {'sqlalchemy', 'alembic', 'torch'} & set(sys.modules)\n"
        "from gpubench_plugin.results.registry import registry\n"
        "def opened():\n"
        "    registry.Registry.open('', Path(sys.argv[1])).close()\n"
        "    return 'alembic' in sys.modules\n"
        "made = opened()\n"
        "del sys.modules['alembic']\n"
        "print(made, opened(), 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, results_dir],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["True", "False", "False"]
