"""Runs looked up and listed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from gpubench_plugin.results.registry.restoring import by_key, restored, text, without_results
from gpubench_plugin.results.registry.rows import RunRow
from gpubench_plugin.results.registry.tables import RESULTS, RUNS, TAGS
from gpubench_plugin.results.registry.texts import clean, indexed

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from sqlalchemy import Connection, Row

    from gpubench_plugin.runs import Run


def runs(
    connection: Connection,
    *,
    experiment: str | None,
    branch: str | None,
    tag: str | None,
    limit: int | None,
) -> list[RunRow]:
    """The latest runs, the latest first."""
    query = select(RUNS).order_by(RUNS.c.started_us.desc(), RUNS.c.key.desc()).limit(limit)
    if experiment is not None:
        query = query.where(RUNS.c.experiment == clean(experiment))
    if branch is not None:
        query = query.where(RUNS.c.branch == indexed(branch))
    if tag is not None:
        tagged = select(TAGS.c.run).where(TAGS.c.tag == indexed(tag))
        query = query.where(RUNS.c.key.in_(tagged))
    rows = connection.execute(query).all()
    tags = _tags(connection, [row.key for row in rows])
    return [_row(row, tuple(tags.get(row.key, ()))) for row in rows]


def run(connection: Connection, run_id: str, results_dir: Path) -> Run | None:
    """The run with exactly that id, its folder named where it is below `results_dir`."""
    row = connection.execute(select(RUNS).where(RUNS.c.run_id == indexed(run_id))).first()
    if row is None:
        return None
    results = connection.execute(select(RESULTS).where(RESULTS.c.run == row.key)).all()
    found = restored(connection, results)
    path = results_dir / row.experiment / row.run_id
    only = found[0] if found else without_results(connection, row)
    return replace(only, path=path if path.is_dir() else None)


def states(connection: Connection, run_ids: Collection[str]) -> dict[str, str]:
    """Of those of the runs that are stored, the digest of the files they were stored from."""
    rows = by_key(connection, RUNS, "run_id", map(indexed, run_ids))
    return {run_id: row.state for run_id, row in rows.items()}


def ids(connection: Connection) -> set[str]:
    """Of every run."""
    return set(connection.execute(select(RUNS.c.run_id)).scalars())


def _row(row: Row[Any], tags: tuple[str, ...]) -> RunRow:
    return RunRow(
        run_id=text(row.run_id),
        experiment=text(row.experiment),
        started=text(row.started),
        status=row.status,
        commit=row.commit and text(row.commit),
        branch=row.branch and text(row.branch),
        dirty=row.dirty,
        tags=tuple(map(text, tags)),
        benchmarks=row.benchmarks,
        measured=row.measured,
        regressed=row.regressed,
    )


def _tags(connection: Connection, keys: list[int]) -> dict[int, list[str]]:
    query = select(TAGS).order_by(TAGS.c.tag)
    if keys:
        query = query.where(TAGS.c.run.between(min(keys), max(keys)))
    found: dict[int, list[str]] = {}
    for row in connection.execute(query):
        found.setdefault(row.run, []).append(row.tag)
    return found
