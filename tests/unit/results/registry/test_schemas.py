"""Two versions of gpubench with different tables use one database, each its own."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from gpubench_plugin.core.errors import RegistryError
from gpubench_plugin.results.registry.connection import store_run
from gpubench_plugin.results.registry.tables import SCHEMA

OTHER_VERSION = """
import sys
from importlib import util
from pathlib import Path

name = "gpubench_plugin.results.registry.tables"
spec = util.find_spec(name)
tables = util.module_from_spec(spec)
source = Path(spec.origin).read_text().replace("SCHEMA: Final = ", "SCHEMA: Final = 1")
sys.modules[name] = tables
exec(compile(source, spec.origin, "exec"), tables.__dict__)
sys.modules[name.rpartition(".")[0]].tables = tables

from gpubench_plugin.cli.main import main
from gpubench_plugin.results.registry.registry import Registry

url, results_dir, action, *arguments = sys.argv[1:]
with Registry.open(url, Path(results_dir)) as registry:
    registry.ingest_all()
    if action == "forget":
        registry.forget(*arguments)
    print(*(run.run_id for run in registry.runs()))
"""


def other_version(backend: Any, results_dir: Any, *action: str) -> list[str]:
    """The runs that a client of another schema lists after an `action`."""
    done = subprocess.run(
        [sys.executable, "-c", OTHER_VERSION, backend.url, results_dir, *(action or ("list",))],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def rows(registry: Any, schema: str) -> Any:
    with registry.database.reading() as connection:
        query = f"SELECT * FROM runs_{schema} JOIN results_{schema} ON run = key"
        return connection.exec_driver_sql(query).all()


@pytest.mark.slow
def test_two_schemas_share_documents_and_nothing_else(
    backend: Any, make_run: Any, tmp_path: Any
) -> None:
    """Each client indexes what the other stored, and its tables stay as it left them."""
    if backend.kind == "sqlite":
        backend = replace(backend, url=f"sqlite:///{tmp_path / 'shared.sqlite'}")
    elsewhere = tmp_path / "elsewhere"
    first, second = make_run(1), make_run(2)
    with backend.open() as registry:
        registry.ingest_all()
        assert other_version(backend, elsewhere) == [second.run_id, first.run_id]
        mine, theirs = rows(registry, str(SCHEMA)), rows(registry, f"1{SCHEMA}")
        assert other_version(backend, elsewhere, "forget", first.run_id) == [second.run_id]
        assert rows(registry, str(SCHEMA)) == mine

        theirs = rows(registry, f"1{SCHEMA}")
        first.journal.unlink()
        registry.ingest_all()
        assert [run.run_id for run in registry.runs()] == [second.run_id]
        registry.ingest(make_run(3))
        assert rows(registry, f"1{SCHEMA}") == theirs
    assert len(other_version(backend, elsewhere)) == 2


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("theirs (x INTEGER)", ["foreign tables (theirs)", "use a separate database"]),
        ("documents (name VARCHAR(9), text TEXT)", ["foreign tables (documents)"]),
    ],
)
def test_tables_of_something_else_are_left_alone(
    backend: Any, make_run: Any, table: str, words: list[str]
) -> None:
    """Somebody's own database, or documents of another form, are not filled with ours."""
    backend.sql(f"CREATE TABLE {table}")
    with pytest.raises(RegistryError) as error:
        backend.open()
    for message in (error.value, store_run(backend.url, backend.results_dir, make_run(1))):
        assert [word for word in words if word not in str(message)] == []
