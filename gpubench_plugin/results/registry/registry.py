"""Registry: queries and updates.

A database that is down, locked, read-only, full, damaged or of another schema is a
:class:`RegistryError`; run directories are never changed. A query for a benchmark's results reads
one index only.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Self

from sqlalchemy import Connection, Integer, Row, Select, bindparam, func, select

from gpubench_plugin.core.records import Result, Run
from gpubench_plugin.results import run_directory
from gpubench_plugin.results.reader import RunOverview
from gpubench_plugin.results.registry import documents, ingest, schema
from gpubench_plugin.results.registry.database import Database
from gpubench_plugin.results.registry.locations import TIMEOUT_S, location
from gpubench_plugin.results.registry.rows import (
    Metrics,
    apart,
    by_key,
    facts,
    mapping,
    overview,
    run_without_results,
    stored_text,
    to_runs,
)
from gpubench_plugin.results.registry.tables import RESULTS, RUNS, TAGS
from gpubench_plugin.results.registry.texts import clean, digest, indexed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from gpubench_plugin.results.run_directory import RunDirectory
    from gpubench_plugin.results.tags import TagChange


class Registry:
    """An open registry, a context manager; a process may open several."""

    def __init__(self, database: Database, results_dir: Path):
        self.database = database
        self.results_dir = results_dir

    @classmethod
    def open(
        cls, url: str, results_dir: Path, *, create: bool = True, timeout_s: float = TIMEOUT_S
    ) -> Registry:
        """Open the registry at `url`; empty means ``registry.sqlite`` in `results_dir`.

        A missing one is created if `create` is set; one of an older schema is refused until
        ``gpubench db upgrade``.

        Raises:
            UsageProblem: the URL is invalid or unsupported.
            RegistryError: the database cannot be used now.
        """
        database = Database.open(location(url, results_dir), create=create, timeout_s=timeout_s)
        try:
            schema.require_current(database, create=create)
        except BaseException:
            database.close()
            raise
        return cls(database, results_dir)

    def ingest(self, directory: RunDirectory) -> bool:
        """Store the run in `directory`; return whether anything changed.

        Raises:
            RegistryError: the database cannot be used now; so for all methods.
            ResultsError: the run cannot be read, or a different run with its id is stored.
        """
        with self.database.readable_errors():
            return ingest.ingest(self.database, directory)

    def runs(
        self,
        *,
        prefix: str = "",
        experiment: str | None = None,
        branch: str | None = None,
        tag: str | None = None,
        limit: int | None = None,
    ) -> list[RunOverview]:
        """Latest runs, newest first, by id prefix, experiment, branch or tag."""
        query = select(RUNS).order_by(RUNS.c.started_us.desc(), RUNS.c.key.desc()).limit(limit)
        if prefix:
            start = func.substr(RUNS.c.run_id, 1, len(prefix))  # SQLite's LIKE ignores case
            query = query.where(start == clean(prefix))
        if experiment is not None:
            query = query.where(RUNS.c.experiment == clean(experiment))
        if branch is not None:
            query = query.where(RUNS.c.branch == indexed(branch))
        if tag is not None:
            tagged = select(TAGS.c.run).where(TAGS.c.tag == indexed(tag))
            query = query.where(RUNS.c.key.in_(tagged))
        with self.database.reading() as connection:
            rows = connection.execute(query).all()
            tags = _tags(connection, [row.key for row in rows])
            return [overview(row, tags.get(row.key, ())) for row in rows]

    def earlier(
        self,
        benchmarks: Collection[str],
        *,
        branch: str | None,
        since: str | None,
        limit: int,
        fingerprints: Mapping[str, str] | None = None,
    ) -> list[Run]:
        """Complete, clean runs without regressions that measured `benchmarks`, oldest first.

        Up to `limit` runs per benchmark: the first ones from the run `since` on, inclusive, else
        the latest. A `branch` of None means any. `fingerprints` (see
        :func:`~.fingerprints.fingerprint_of`) restrict the runs of a benchmark.
        """
        fingerprints = fingerprints or {}
        with self.database.reading() as connection:
            since_us = None if since is None else _started_us(connection, since)
            rows: list[Row[Any]] = []
            for name in dict.fromkeys(benchmarks):
                query = samples(
                    branch=branch is not None,
                    since=since is not None,
                    fingerprint=name in fingerprints,
                )
                values = {
                    "benchmark": digest(name),
                    "branch": branch and indexed(branch),
                    "since": since_us,
                    "fingerprint": fingerprints.get(name),
                    "limit": limit,
                }
                rows += connection.execute(query, values).all()
            return to_runs(connection, rows)

    def points(
        self, benchmark: str, metric: str, *, branch: str | None = None, limit: int = 1000
    ) -> list[tuple[Run, str]]:
        """Latest `limit` results of a benchmark with a metric, oldest first.

        Returns:
            Runs with their fingerprints. A run has time, commit and branch only, and its single
            result clock, numbers and work.
        """
        if '"' in metric:
            return []  # not a metric name, and not quotable in a JSON path
        query = values(metric, branch=branch is not None)
        parameters = {
            "benchmark": digest(benchmark),
            "branch": branch and indexed(branch),
            "limit": limit,
        }
        with self.database.reading() as connection:
            rows = connection.execute(query, parameters).all()
            stored = facts(connection, {d for row in rows for d in (row.units, row.settings)})
            return [(_point(row, benchmark, stored), row.fingerprint) for row in reversed(rows)]

    def run(self, run_id: str) -> Run | None:
        """Run with that exact id and all its benchmarks, or None; its path if it is local."""
        with self.database.reading() as connection:
            row = connection.execute(select(RUNS).where(RUNS.c.run_id == indexed(run_id))).first()
            if row is None:
                return None
            results = connection.execute(select(RESULTS).where(RESULTS.c.run == row.key)).all()
            run = next(iter(to_runs(connection, results)), None)
            run = run or run_without_results(connection, row)
            path = self.results_dir / row.experiment / row.run_id
            return replace(run, path=path if path.is_dir() else None)

    def states(self, run_ids: Collection[str]) -> dict[str, str]:
        """File digests of the stored runs among `run_ids`."""
        with self.database.reading() as connection:
            rows = by_key(connection, RUNS, "run_id", map(indexed, run_ids))
            return {run_id: row.state for run_id, row in rows.items()}

    def tag_changes(self, run_id: str) -> frozenset[TagChange]:
        """Tag changes of a run on any machine, as far as stored.

        Raises:
            ResultsError: they cannot be read; so for :meth:`tag`.
        """
        with self.database.reading() as connection:
            text = documents.text_of(connection, ingest.TAGS_KIND, run_id)
        return ingest.stored_tags(text, run_id)

    def tag(self, directory: RunDirectory) -> tuple[str, ...] | None:
        """Merge the tags of `directory` with those stored; return them, None for an unknown run."""
        with self.database.writing() as connection:
            return ingest.tag(connection, directory)

    def forget(self, run_id: str) -> None:
        """Delete the run from the registry, but not its directory."""
        with self.database.writing() as connection:
            ingest.forget(connection, run_id)
            documents.remove(connection, ingest.TAGS_KIND, run_id)

    def merge_document(
        self, kind: str, name: str, merge_text: Callable[[str | None], tuple[str, str]]
    ) -> str | None:
        """Replace a document by the result of `merge_text`; see :func:`.documents.merge`."""
        return documents.merge(self.database.reading, self.database.writing, kind, name, merge_text)

    def documents(self, kind: str) -> dict[str, str]:
        """Documents of a kind, by name."""
        with self.database.reading() as connection:
            return documents.texts(connection, kind)

    def close(self) -> None:
        """Close the database; idempotent."""
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def upgrade(url: str, results_dir: Path, *, timeout_s: float = TIMEOUT_S) -> bool:
    """Migrate the registry at `url`; return whether anything was done.

    Raises:
        UsageProblem: the URL is invalid or unsupported.
        RegistryError: the tables are foreign or of a newer version, or the database cannot be used.
    """
    target = location(url, results_dir)
    with closing(Database.open(target, create=True, timeout_s=timeout_s)) as database:
        return schema.migrate(database)


@cache
def samples(*, branch: bool, since: bool, fingerprint: bool) -> Select[Any]:
    """Query for one benchmark's rows, from a time on or the latest."""
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


@cache
def values(metric: str, *, branch: bool) -> Select[Any]:
    """Query for the latest rows of a benchmark with a metric, newest first."""
    has_metric = RESULTS.c.metrics[metric].as_float().is_not(None)
    columns = (RUNS.c.run_id, RUNS.c.started, RUNS.c.commit, RUNS.c.branch)
    result_columns = (RESULTS.c.outcome, RESULTS.c.timer, RESULTS.c.metrics, RESULTS.c.launches)
    query = (
        select(
            *columns, *result_columns, RESULTS.c.units, RESULTS.c.settings, RESULTS.c.fingerprint
        )
        .join(RUNS, RUNS.c.key == RESULTS.c.run)
        .where(RESULTS.c.benchmark == bindparam("benchmark"), has_metric)
    )
    if branch:
        query = query.where(RESULTS.c.branch == bindparam("branch"))
    return query.order_by(RESULTS.c.started_us.desc()).limit(bindparam("limit", type_=Integer))


def _point(row: Row[Any], benchmark: str, facts: Mapping[str, Any]) -> Run:
    """Partial run of a row of :func:`values`."""
    result = Result(
        id=benchmark,
        outcome=row.outcome,
        timer=row.timer,
        metrics=Metrics(row.metrics, facts[row.units]),
        launches=tuple(map(mapping, row.launches or [row.metrics])),
        **apart(mapping(facts[row.settings]))[1],
    )
    return Run(
        label=row.run_id,
        run_id=stored_text(row.run_id),
        started=stored_text(row.started),
        commit=row.commit,
        branch=row.branch,
        results={benchmark: result},
    )


def _started_us(connection: Connection, run_id: str) -> int:
    """Start of a run in microseconds, as stored, else from its id."""
    query = select(RUNS.c.started_us).where(RUNS.c.run_id == indexed(run_id))
    stored_us = connection.execute(query).scalar()
    if stored_us is not None:
        return int(stored_us)
    start_time = run_directory.start_time(run_id)
    return 0 if start_time is None else round(start_time.timestamp() * 1_000_000)


def _tags(connection: Connection, keys: list[int]) -> dict[int, list[str]]:
    """Tags of the runs with these keys, possibly with others, by key."""
    query = select(TAGS).order_by(TAGS.c.tag)
    if keys:
        query = query.where(TAGS.c.run.between(min(keys), max(keys)))
    tags: dict[int, list[str]] = {}
    for row in connection.execute(query):
        tags.setdefault(row.run, []).append(row.tag)
    return tags
