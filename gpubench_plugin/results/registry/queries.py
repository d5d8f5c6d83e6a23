"""What was measured of benchmarks before: one query for each, which reads one index and no more."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import Integer, bindparam, select

from gpubench_plugin.results.registry.ingest import digest
from gpubench_plugin.results.registry.restoring import Metrics, facts, mapping, restored, text
from gpubench_plugin.results.registry.rows import Point
from gpubench_plugin.results.registry.tables import RESULTS, RUNS
from gpubench_plugin.results.registry.texts import indexed
from gpubench_plugin.runs import Result

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from sqlalchemy import Connection, Row, Select

    from gpubench_plugin.runs import Run

_BEGINNING = "%Y%m%dT%H%M%SZ"
"""With what every run id begins."""


def earlier(
    connection: Connection,
    benchmarks: Collection[str],
    *,
    branch: str | None,
    since: str | None,
    limit: int,
    fingerprints: Mapping[str, str],
) -> list[Run]:
    """Runs that `benchmarks` can be compared with; see :meth:`.registry.Registry.earlier`."""
    from_us = None if since is None else _started(connection, since)
    rows: list[Row[Any]] = []
    for name in dict.fromkeys(benchmarks):
        query = samples(
            branch=branch is not None, since=since is not None, fingerprint=name in fingerprints
        )
        given = {
            "benchmark": digest(name),
            "branch": branch and indexed(branch),
            "since": from_us,
            "fingerprint": fingerprints.get(name),
            "limit": limit,
        }
        rows += connection.execute(query, given).all()
    return restored(connection, rows)


@cache
def samples(*, branch: bool, since: bool, fingerprint: bool) -> Select[Any]:
    """The query for one benchmark's rows, from a time in microseconds on or the latest."""
    query = select(RESULTS).where(RESULTS.c.benchmark == bindparam("benchmark"), RESULTS.c.sample)
    if branch:
        query = query.where(RESULTS.c.branch == bindparam("branch"))
    if fingerprint:
        query = query.where(RESULTS.c.fingerprint == bindparam("fingerprint"))
    order = RESULTS.c.started_us.desc()
    if since:
        query = query.where(RESULTS.c.started_us >= bindparam("since"))
        order = RESULTS.c.started_us.asc()
    return query.order_by(order).limit(bindparam("limit", type_=Integer))


def points(
    connection: Connection, benchmark: str, metric: str, *, branch: str | None, limit: int
) -> list[Point]:
    """The latest results of a benchmark that have a metric, oldest first."""
    if '"' in metric:
        return []  # no metric is called so, and a path into JSON cannot name it
    given = {
        "benchmark": digest(benchmark),
        "branch": branch and indexed(branch),
        "limit": limit,
    }
    rows = connection.execute(values(metric, branch=branch is not None), given).all()
    units = facts(connection, {row.units for row in rows})
    return [
        Point(
            run_id=text(row.run_id),
            started=text(row.started),
            commit=row.commit,
            branch=row.branch,
            result=Result(
                id=benchmark,
                outcome=row.outcome,
                timer=row.timer,
                metrics=Metrics(row.metrics, units[row.units]),
                launches=tuple(map(mapping, row.launches or [row.metrics])),
            ),
            fingerprint=row.fingerprint,
        )
        for row in reversed(rows)
    ]


@cache
def values(metric: str, *, branch: bool) -> Select[Any]:
    """The query for the latest rows of a benchmark that have a metric, the latest first."""
    told = RESULTS.c.metrics[metric].as_float().is_not(None)
    columns = (RUNS.c.run_id, RUNS.c.started, RUNS.c.commit, RUNS.c.branch)
    own = (RESULTS.c.outcome, RESULTS.c.timer, RESULTS.c.metrics, RESULTS.c.launches)
    query = (
        select(*columns, *own, RESULTS.c.units, RESULTS.c.fingerprint)
        .join(RUNS, RUNS.c.key == RESULTS.c.run)
        .where(RESULTS.c.benchmark == bindparam("benchmark"), told)
    )
    if branch:
        query = query.where(RESULTS.c.branch == bindparam("branch"))
    return query.order_by(RESULTS.c.started_us.desc()).limit(bindparam("limit", type_=Integer))


def _started(connection: Connection, run_id: str) -> int:
    """When a run began, in microseconds: as stored, else as its id says to the second."""
    query = select(RUNS.c.started_us).where(RUNS.c.run_id == indexed(run_id))
    found = connection.execute(query).scalar()
    if found is not None:
        return int(found)
    try:
        moment = datetime.strptime(run_id.partition("_")[0], _BEGINNING).replace(tzinfo=UTC)
    except ValueError:
        return 0
    return round(moment.timestamp() * 1_000_000)
