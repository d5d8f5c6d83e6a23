"""Whether the registry is sound, and agrees with the run directories."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, select, text

from gpubench_plugin.errors import ResultsError
from gpubench_plugin.results.registry import queries, schema, spool
from gpubench_plugin.results.registry.ingest import state_of
from gpubench_plugin.results.registry.spool import Stored, ended_runs
from gpubench_plugin.results.registry.tables import BENCHMARKS, FACTS, RESULTS, RUNS
from gpubench_plugin.results.run_directory import runs_in

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    from sqlalchemy import Connection, Select

    from gpubench_plugin.results.registry.database import Database
    from gpubench_plugin.results.registry.registry import Registry

_SHOWN = 5


@dataclass(kw_only=True)
class Findings:
    """What was found: `facts` are worth knowing, `problems` want something done."""

    facts: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def check(registry: Registry) -> Findings:
    """Look at everything; nothing is changed.

    Raises:
        RegistryError: it cannot be read now, or is damaged.
    """
    with registry.database.answering():
        return _findings(registry.database, registry.results_dir)


def _findings(database: Database, results_dir: Path) -> Findings:
    found = Findings()
    with database.reading() as connection:
        found.facts.append(f"schema {schema.version_in(connection, database.location)}")
        found.facts.append(_counted(connection))
        found.problems += _damage(connection)
        states = queries.states(connection, [d.run_id for d in runs_in(results_dir)])
        elsewhere = queries.ids(connection) - states.keys()
    _compare(found, states, results_dir)
    _say_elsewhere(found, elsewhere, results_dir, shared=database.location.file is None)
    waiting = spool.waiting(database.location, results_dir)
    if waiting:
        ids = [marker.directory.run_id for marker in waiting]
        found.problems.append(f"{_runs(ids)} in the spool; 'gpubench db ingest' stores them")
    return found


def _compare(found: Findings, states: Mapping[str, str], results_dir: Path) -> None:
    told = Stored()
    new, changed = [], []
    for directory in ended_runs(results_dir, told):
        try:
            state = state_of(directory)
        except ResultsError as error:
            found.problems.append(str(error))
            continue
        if directory.run_id not in states:
            new.append(directory.run_id)
        elif states[directory.run_id] != state:
            changed.append(directory.run_id)
    if new:
        found.problems.append(f"{_runs(new)} not stored; 'gpubench db ingest' stores them")
    if changed:
        found.problems.append(
            f"{_runs(changed)} changed since stored; 'gpubench db ingest' stores them"
        )
    if told.written:
        found.facts.append(f"{told.written} being written just now")


def _say_elsewhere(
    found: Findings, run_ids: Collection[str], results_dir: Path, *, shared: bool
) -> None:
    if run_ids and shared:
        found.facts.append(f"{_runs(run_ids)} stored from other folders than {results_dir}")
    elif run_ids:
        found.problems.append(f"{_runs(run_ids)} stored, but not in {results_dir}")


def _damage(connection: Connection) -> Iterator[str]:
    if connection.dialect.name == "sqlite":
        said = connection.execute(text("PRAGMA integrity_check(5)")).scalars().all()
        if said != ["ok"]:
            yield f"damaged, 'gpubench db rebuild' makes it anew: {'; '.join(map(str, said))}"
    for what, query in _orphans():
        count = connection.execute(query).scalar_one()
        if count:
            yield f"{count} {what}; 'gpubench db rebuild' makes it anew"


def _orphans() -> Iterator[tuple[str, Select[Any]]]:
    count = select(func.count())
    no_run = ~select(RUNS.c.key).where(RUNS.c.key == RESULTS.c.run).exists()
    yield "results without their run", count.select_from(RESULTS).where(no_run)
    unnamed = ~select(BENCHMARKS).where(BENCHMARKS.c.digest == RESULTS.c.benchmark).exists()
    yield "results without their benchmark's name", count.select_from(RESULTS).where(unnamed)
    for column in (RESULTS.c.settings, RESULTS.c.limits, RESULTS.c.units):
        lost = ~select(FACTS.c.digest).where(FACTS.c.digest == column).exists()
        yield f"results without their {column.name}", count.select_from(RESULTS).where(lost)
    own = select(func.count()).select_from(RESULTS).where(RESULTS.c.run == RUNS.c.key)
    differs = own.scalar_subquery() != RUNS.c.benchmarks
    yield "runs without all their results", count.select_from(RUNS).where(differs)


def _counted(connection: Connection) -> str:
    runs = connection.execute(select(func.count()).select_from(RUNS)).scalar_one()
    results = connection.execute(select(func.count()).select_from(RESULTS)).scalar_one()
    return f"{runs} run{'s' * (runs != 1)} with {results} results"


def _runs(ids: Collection[str]) -> str:
    more = len(ids) - _SHOWN
    named = ", ".join(sorted(ids)[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
    return f"{len(ids)} run{'s' * (len(ids) != 1)} ({named})"
