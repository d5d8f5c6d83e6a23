"""Queries of the registry: earlier results of benchmarks, runs, and documents.

A query for a benchmark's results reads one index and no more. Documents are small texts that
machines share, baselines for example; a writer merges, and overwrites none.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Integer, bindparam, delete, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from gpubench_plugin.errors import RegistryError
from gpubench_plugin.records import Result
from gpubench_plugin.results.registry.rows import (
    Metrics,
    Point,
    RunRow,
    by_key,
    facts,
    mapping,
    restored,
    stored_text,
    without_results,
    without_work,
)
from gpubench_plugin.results.registry.tables import DOCUMENTS, RESULTS, RUNS, TAGS
from gpubench_plugin.results.registry.texts import clean, digest, indexed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from sqlalchemy import ColumnElement, Connection, Row, Select

    from gpubench_plugin.records import Run


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
    known = facts(connection, {digest for row in rows for digest in (row.units, row.settings)})
    return [
        Point(
            run_id=stored_text(row.run_id),
            started=stored_text(row.started),
            commit=row.commit,
            branch=row.branch,
            result=Result(
                id=benchmark,
                outcome=row.outcome,
                timer=row.timer,
                metrics=Metrics(row.metrics, known[row.units]),
                launches=tuple(map(mapping, row.launches or [row.metrics])),
                work=without_work(mapping(known[row.settings]))[1],
            ),
            fingerprint=row.fingerprint,
        )
        for row in reversed(rows)
    ]


@cache
def values(metric: str, *, branch: bool) -> Select[Any]:
    """The query for the latest rows of a benchmark that have a metric, the latest first."""
    has_metric = RESULTS.c.metrics[metric].as_float().is_not(None)
    columns = (RUNS.c.run_id, RUNS.c.started, RUNS.c.commit, RUNS.c.branch)
    own = (RESULTS.c.outcome, RESULTS.c.timer, RESULTS.c.metrics, RESULTS.c.launches)
    query = (
        select(*columns, *own, RESULTS.c.units, RESULTS.c.settings, RESULTS.c.fingerprint)
        .join(RUNS, RUNS.c.key == RESULTS.c.run)
        .where(RESULTS.c.benchmark == bindparam("benchmark"), has_metric)
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
        run_id=stored_text(row.run_id),
        experiment=stored_text(row.experiment),
        started=stored_text(row.started),
        status=row.status,
        commit=row.commit and stored_text(row.commit),
        branch=row.branch and stored_text(row.branch),
        dirty=row.dirty,
        tags=tuple(map(stored_text, tags)),
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


ATTEMPTS: Final = 100
"""Each that fails means that another writer succeeded: so many would have to write at once."""


def merge(
    reading: Callable[[], AbstractContextManager[Connection]],
    writing: Callable[[], AbstractContextManager[Connection]],
    kind: str,
    name: str,
    merged: Callable[[str | None], tuple[str, str]],
) -> str | None:
    """Replace a text by what `merged` makes of it; the text that was replaced.

    `merged` gets the text that is stored, None for none, and returns the new one and when that was
    changed (UTC, ISO 8601). It may be called again, if somebody else replaced the text meanwhile.

    Raises:
        RegistryError: others replaced it again and again.
    """
    for _ in range(ATTEMPTS):
        with reading() as connection:
            stored = text_of(connection, kind, name)
        text, changed = merged(stored)
        if text == stored:
            return stored
        with writing() as connection:
            if swap(connection, kind, name, stored, text, changed):
                return stored
    raise RegistryError(f"the {kind} {name!r} was changed by others {ATTEMPTS} times meanwhile")


def swap(
    connection: Connection, kind: str, name: str, stored: str | None, text: str, changed: str
) -> bool:
    """Store `text` if `stored` still is what stands there, None for nothing; whether it was."""
    values = {"text": clean(text), "changed": clean(changed)}
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    new = dialect.insert(DOCUMENTS).values(kind=indexed(kind), name=indexed(name), **values)
    # By the text, not by its time: two writers may have the same microsecond.
    replacing = update(DOCUMENTS).where(_is(kind, name), DOCUMENTS.c.text == stored).values(values)
    writing = new.on_conflict_do_nothing() if stored is None else replacing
    return connection.execute(writing.returning(DOCUMENTS.c.name)).first() is not None


def text_of(connection: Connection, kind: str, name: str) -> str | None:
    """The text called so; None where there is none."""
    return connection.execute(select(DOCUMENTS.c.text).where(_is(kind, name))).scalar()


def remove(connection: Connection, kind: str, name: str) -> None:
    """Let there be no text called so."""
    connection.execute(delete(DOCUMENTS).where(_is(kind, name)))


def restore(connection: Connection, documents: list[tuple[str, str, str, str]]) -> None:
    """Store `documents`, as :func:`stored` gave them, where there is none."""
    rows = [dict(zip(DOCUMENTS.c.keys(), document, strict=True)) for document in documents]
    if rows:
        connection.execute(insert(DOCUMENTS), rows)


def texts(connection: Connection, kind: str) -> dict[str, str]:
    """The texts of a kind by name."""
    query = select(DOCUMENTS.c.name, DOCUMENTS.c.text).where(DOCUMENTS.c.kind == indexed(kind))
    rows = connection.execute(query.order_by(DOCUMENTS.c.name))
    return {stored_text(row.name): stored_text(row.text) for row in rows}


def stored(connection: Connection) -> list[tuple[str, str, str, str]]:
    """Every document: kind, name, text and when it was changed."""
    columns = (DOCUMENTS.c.kind, DOCUMENTS.c.name, DOCUMENTS.c.text, DOCUMENTS.c.changed)
    rows = (tuple(map(stored_text, row)) for row in connection.execute(select(*columns)))
    return [(kind, name, text, changed) for kind, name, text, changed in rows]


def _is(kind: str, name: str) -> ColumnElement[bool]:
    return (DOCUMENTS.c.kind == indexed(kind)) & (DOCUMENTS.c.name == indexed(name))
