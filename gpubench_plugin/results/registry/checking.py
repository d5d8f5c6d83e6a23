"""Registry integrity check against the run directories."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Select, func, select, text

from gpubench_plugin.core.errors import ResultsError
from gpubench_plugin.core.words import counted, listed
from gpubench_plugin.results.registry import schema, spool
from gpubench_plugin.results.registry.ingest import state_of
from gpubench_plugin.results.registry.spool import Report, finished_runs
from gpubench_plugin.results.registry.tables import BENCHMARKS, FACTS, RESULTS, RUNS
from gpubench_plugin.results.run_directory import runs_in

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    from gpubench_plugin.results.registry.registry import Registry


def check(registry: Registry) -> Report:
    """Check everything without modifying anything.

    Raises:
        RegistryError: it cannot be read now, or is damaged.
    """
    database, results_dir = registry.database, registry.results_dir
    report = Report()
    with database.readable_errors():
        with database.reading() as connection:
            report.notes.append(f"schema {schema.version_in(connection, database.location)}")
            report.notes.append(_counts_text(connection))
            report.errors += _damage(connection)
            rows = connection.execute(select(RUNS.c.run_id, RUNS.c.state))
            states = {row.run_id: row.state for row in rows}
        _compare(report, states, results_dir)
        remote_ids = states.keys() - {directory.run_id for directory in runs_in(results_dir)}
        if remote_ids and database.location.file is None:  # a server, shared with other machines
            report.notes.append(f"{_runs(remote_ids)} stored from other folders than {results_dir}")
        elif remote_ids:
            report.errors.append(f"{_runs(remote_ids)} stored, but not in {results_dir}")
        if spooled := spool.pending(database.location, results_dir):
            ids = [marker.directory.run_id for marker in spooled]
            report.errors.append(f"{_runs(ids)} in the spool; store with 'gpubench db ingest'")
    return report


def _compare(report: Report, states: Mapping[str, str], results_dir: Path) -> None:
    missing_ids, changed_ids = [], []
    for directory in finished_runs(results_dir, report):
        try:
            state = state_of(directory)
        except ResultsError as error:
            report.errors.append(str(error))
            continue
        if directory.run_id not in states:
            missing_ids.append(directory.run_id)
        elif states[directory.run_id] != state:
            changed_ids.append(directory.run_id)
    if missing_ids:
        report.errors.append(f"{_runs(missing_ids)} not stored; store with 'gpubench db ingest'")
    if changed_ids:
        report.errors.append(
            f"{_runs(changed_ids)} changed since stored; update with 'gpubench db ingest'"
        )
    if report.in_progress:
        report.notes.append(f"{report.in_progress} still being written")


def _damage(connection: Connection) -> Iterator[str]:
    if connection.dialect.name == "sqlite":
        damage = connection.execute(text("PRAGMA integrity_check(5)")).scalars().all()
        if damage != ["ok"]:
            yield f"damaged; 'gpubench db rebuild' recreates it: {'; '.join(map(str, damage))}"
    for description, query in _orphans():
        count = connection.execute(query).scalar_one()
        if count:
            yield f"{count} {description}; 'gpubench db rebuild' recreates it"


def _orphans() -> Iterator[tuple[str, Select[Any]]]:
    count = select(func.count())
    no_run = ~select(RUNS.c.key).where(RUNS.c.key == RESULTS.c.run).exists()
    yield "results without their run", count.select_from(RESULTS).where(no_run)
    without_name = ~select(BENCHMARKS).where(BENCHMARKS.c.digest == RESULTS.c.benchmark).exists()
    yield "results without their benchmark's name", count.select_from(RESULTS).where(without_name)
    for column in (RESULTS.c.settings, RESULTS.c.limits, RESULTS.c.units):
        is_orphan = ~select(FACTS.c.digest).where(FACTS.c.digest == column).exists()
        yield f"results without their {column.name}", count.select_from(RESULTS).where(is_orphan)
    result_count = select(func.count()).select_from(RESULTS).where(RESULTS.c.run == RUNS.c.key)
    differs = result_count.scalar_subquery() != RUNS.c.benchmarks
    yield "runs without all their results", count.select_from(RUNS).where(differs)


def _counts_text(connection: Connection) -> str:
    runs = connection.execute(select(func.count()).select_from(RUNS)).scalar_one()
    results = connection.execute(select(func.count()).select_from(RESULTS)).scalar_one()
    return f"{counted(runs, 'run')} with {results} results"


def _runs(ids: Collection[str]) -> str:
    return f"{counted(len(ids), 'run')} ({listed(sorted(ids))})"
