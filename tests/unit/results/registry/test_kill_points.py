"""Writers of a PostgreSQL registry are killed at each of their points, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import create_engine

from gpubench_plugin.results.registry.registry import Registry
from tests.support.kill_points import survive
from tests.support.scenarios import Accept, Ingest, Rebuild, Results

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


TABLES = ("facts_1", "runs_1", "results_1", "documents")
"""Those first that others refer to."""
STATEMENTS_APART = 5
"""A transaction is there as a whole or not at all, so one statement is much like the next."""


class OnServer(Results):
    """A registry that is not in the folder: its rows are put back before each kill."""

    def __init__(self, url: str):
        self.url = url
        self._engine = create_engine(url)

    def store(self, folder: Path) -> None:
        Registry.open(self.url, folder).close()
        super().store(folder)

    def keep(self) -> None:
        with self._engine.begin() as connection:
            connection.exec_driver_sql("CREATE SCHEMA kept")
            for table in TABLES:
                connection.exec_driver_sql(f"CREATE TABLE kept.{table} AS TABLE {table}")
        self._engine.dispose()  # no process that is forked may have a connection of another's

    def renew(self) -> None:
        with self._engine.begin() as connection:
            connection.exec_driver_sql(f"TRUNCATE {', '.join(TABLES)}")
            for table in TABLES:
                connection.exec_driver_sql(f"INSERT INTO {table} SELECT * FROM kept.{table}")
        self._engine.dispose()

    def state(self, folder: Path) -> str:
        rows = ""
        with self._engine.connect() as connection:
            for columns in ("run_id, digest FROM runs_1", "name, digest FROM documents"):
                rows += str(connection.exec_driver_sql(f"SELECT {columns} ORDER BY 1").all())
        self._engine.dispose()
        return super().state(folder) + rows


class IngestOnServer(OnServer, Ingest):
    pass


class RebuildOnServer(OnServer, Rebuild):
    pass


class AcceptOnServer(OnServer, Accept):
    pass


@pytest.mark.exhaustive
@pytest.mark.parametrize("backend", ["postgresql"], indirect=True)
@pytest.mark.parametrize("scenario", [IngestOnServer, RebuildOnServer, AcceptOnServer])
def test_a_kill_at_any_point_loses_nothing(
    scenario: type[OnServer], backend: Any, in_memory: Path
) -> None:
    """What had ended is there and equal, and the rest can be done again."""
    survive(scenario(backend.url), in_memory, statements_apart=STATEMENTS_APART)
