"""Registry: queries and updates.

A database that is down, locked, read-only, full or damaged is a :class:`RegistryError`; run
directories are never changed. A query for a benchmark's results reads one index only.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from pydantic_core import from_json
from sqlalchemy import Connection, Integer, Row, Select, bindparam, delete, func, select

from gpubench_plugin.core.errors import ResultsError
from gpubench_plugin.core.records import Metric, Result, Run
from gpubench_plugin.results import run_directory
from gpubench_plugin.results.reader import RunOverview
from gpubench_plugin.results.registry import documents, ingest, tables
from gpubench_plugin.results.registry.database import Database, lock
from gpubench_plugin.results.registry.documents import RUN
from gpubench_plugin.results.registry.ingest import Report
from gpubench_plugin.results.registry.locations import TIMEOUT_S, location
from gpubench_plugin.results.registry.tables import FACTS, RESULTS, RUNS
from gpubench_plugin.results.run_directory import RunDirectory
from gpubench_plugin.system import stored

_KEYS_PER_QUERY: Final = 500
"""Keys per query: SQLite allows 32,766 parameters, but shorter queries parse faster."""


_RUN_COLUMNS: Final = (
    *(RUNS.c.run_id, RUNS.c.started, RUNS.c.status, RUNS.c.commit, RUNS.c.dirty),
    *(RUNS.c.machine, RUNS.c.environment, RUNS.c.branch.label("run_branch")),
)
"""What :func:`_to_runs` needs beside the columns of ``results``."""


class Registry(AbstractContextManager["Registry"]):
    """An open registry; a process may open several."""

    def __init__(self, database: Database, results_dir: Path):
        self.database = database
        self.results_dir = results_dir

    @classmethod
    def open(
        cls, url: str, results_dir: Path, *, create: bool = True, timeout_s: float = TIMEOUT_S
    ) -> Registry:
        """Open the registry at `url`; empty means ``registry.sqlite`` in `results_dir`.

        A missing file is created if `create` is set, missing tables always.

        Raises:
            UsageProblem: the URL is invalid or unsupported.
            RegistryError: the database cannot be used now.
        """
        database = Database.open(location(url, results_dir), create=create, timeout_s=timeout_s)
        try:
            tables.create_missing(database)
        except BaseException:
            database.close()
            raise
        return cls(database, results_dir)

    @classmethod
    def of_directories(cls, results_dir: Path) -> Registry:
        """The runs below `results_dir` in the memory of this process."""
        database = Database.in_memory()
        tables.create_missing(database)
        return cls(database, results_dir)

    def ingest(self, directory: RunDirectory) -> bool:
        """Store the run in `directory`; return whether anything changed.

        Raises:
            RegistryError: the database cannot be used now; so for all methods.
            ResultsError: the run cannot be read, or a different run with its id is stored.
        """
        return ingest.ingest(self.database, directory)

    def ingest_all(self, *, check_all: bool = False, limit_s: float = math.inf) -> Report:
        """Store and index what is missing; see :func:`.ingest.ingest_all`."""
        return ingest.ingest_all(
            self.database, self.results_dir, check_all=check_all, limit_s=limit_s
        )

    def rebuild(self) -> Report:
        """Derive the index anew from documents and run directories."""
        with self.database.writing(without_timeout=True) as connection:
            for table in (RESULTS, RUNS, tables.FACTS):
                connection.execute(delete(table))
            for run_id in documents.names(connection, RUN):
                ingest.index(connection, run_id)
        return self.ingest_all(check_all=True)

    def runs(
        self, *, prefix: str = "", branch: str | None = None, limit: int | None = None
    ) -> list[RunOverview]:
        """Latest runs, newest first, by id prefix or branch."""
        query = select(RUNS).order_by(RUNS.c.started_us.desc(), RUNS.c.key.desc()).limit(limit)
        if prefix:
            # SQLite's LIKE ignores case.
            query = query.where(func.substr(RUNS.c.run_id, 1, len(prefix)) == prefix)
        if branch is not None:
            query = query.where(RUNS.c.branch == ingest.column(branch))
        with self.database.reading() as connection:
            return [_overview(row) for row in connection.execute(query)]

    def overview(self, run_id: str) -> RunOverview | None:
        """The run with that exact id, or None."""
        return next((run for run in self.runs(prefix=run_id) if run.run_id == run_id), None)

    def earlier(
        self,
        benchmarks: Collection[str],
        *,
        branch: str,
        since: str,
        limit: int,
        fingerprints: Mapping[str, str],
    ) -> list[Run]:
        """Complete, clean runs without regressions that measured `benchmarks`, oldest first.

        Up to `limit` runs of the branch per benchmark: the first ones from the run `since` on,
        inclusive. `fingerprints` (see :func:`~.fingerprints.fingerprint_of`) restrict the runs of a
        benchmark.
        """
        with self.database.reading() as connection:
            since_us = _started_us(connection, since)
            rows: list[Row[Any]] = []
            for name in dict.fromkeys(benchmarks):
                query = results_query(branch=True, fingerprint=name in fingerprints)
                values = {
                    "benchmark": ingest.benchmark_digest(name),
                    "branch": ingest.column(branch),
                    "since": since_us,
                    "fingerprint": fingerprints.get(name),
                    "limit": limit,
                }
                rows += connection.execute(query, values).all()
            return _to_runs(connection, rows)

    def points(
        self, benchmark: str, metric: str, *, branch: str | None = None, limit: int = 1000
    ) -> list[Run]:
        """Latest `limit` runs that have the metric of a benchmark, oldest first.

        They are restricted to that benchmark.
        """
        query = results_query(metric=metric, branch=branch is not None)
        parameters = {
            "benchmark": ingest.benchmark_digest(benchmark),
            "branch": ingest.column(branch),
            "limit": limit,
        }
        with self.database.reading() as connection:
            return _to_runs(connection, connection.execute(query, parameters).all())

    def run(self, run_id: str) -> Run | None:
        """Run with that exact id and all its benchmarks, or None; its path if it is local.

        Raises:
            ResultsError: its document cannot be read, as one of another schema.
        """
        with self.database.reading() as connection:
            text = documents.read(connection, RUN, run_id)
            if text is None:
                return None
            document, run, _ = ingest.contents(run_id, text)
            path = self.results_dir / document.experiment / run_id
            return replace(run, path=path if path.is_dir() else None)

    def tag(
        self,
        run_id: str,
        directory: RunDirectory | None = None,
        *,
        add: Collection[str] = (),
        remove: Collection[str] = (),
    ) -> tuple[str, ...]:
        """Change the tags of a run, and their copy in its `directory`; return the result.

        Raises:
            UsageProblem: a tag is invalid.
            ResultsError: the run has neither a document that can be read nor a directory.
        """
        with self.database.writing() as connection:
            lock(connection, run_id)
            old, known = ingest.readable(connection, run_id)
            if old is None or known is None:
                if directory is None:
                    raise ResultsError(f"the registry has no document of {run_id} that can be read")
                return run_directory.change_tags(directory, add=add, remove=remove)
            tags = run_directory.changed_tags(known.tags, add, remove)
            new = json.dumps({**json.loads(old), "tags": tags})
            documents.swap(connection, RUN, run_id, old, new)
            ingest.index(connection, run_id)
            if directory is not None:
                run_directory.write_tags(directory, tags)  # for a new registry, if this one is lost
            return tags

    def forget(self, run_id: str) -> None:
        """Delete the run's document and its rows of the index, but not its directory."""
        with self.database.writing() as connection:
            lock(connection, run_id)
            documents.remove(connection, RUN, run_id)
            ingest.unindex(connection, run_id)

    def documents(self, kind: str) -> list[str]:
        """Names of the documents of a kind."""
        with self.database.reading() as connection:
            return documents.names(connection, kind)

    def document(self, kind: str, name: str) -> str | None:
        """Text of a document, or None."""
        with self.database.reading() as connection:
            return documents.read(connection, kind, name)

    def swap_document(self, kind: str, name: str, old: str | None, new: str) -> bool:
        """Replace a document's text `old` by `new` unless it changed; see :func:`.swap`."""
        with self.database.writing() as connection:
            return documents.swap(connection, kind, name, old, new)

    def close(self) -> None:
        """Close the database; idempotent."""
        self.database.close()

    def __exit__(self, *error: object) -> None:
        self.close()


@cache
def results_query(*, metric: str = "", branch: bool, fingerprint: bool = False) -> Select[Any]:
    """Query for the rows of a benchmark; with a `branch` or `fingerprint` only for those of one.

    The latest rows with the `metric`, if one is given, else the first samples from a time on.
    """
    query = select(RESULTS, *_RUN_COLUMNS).join(RUNS, RUNS.c.key == RESULTS.c.run)
    query = query.where(RESULTS.c.benchmark == bindparam("benchmark"))
    if metric:
        query = query.where(RESULTS.c.metrics[metric].as_float().is_not(None))
        order = RESULTS.c.started_us.desc()
    else:
        query = query.where(RESULTS.c.sample, RESULTS.c.started_us >= bindparam("since"))
        order = RESULTS.c.started_us.asc()
    if branch:
        query = query.where(RESULTS.c.branch == bindparam("branch"))
    if fingerprint:
        query = query.where(RESULTS.c.fingerprint == bindparam("fingerprint"))
    return query.order_by(order).limit(bindparam("limit", type_=Integer))


def _started_us(connection: Connection, run_id: str) -> int:
    """Start of a run in microseconds, as stored, else from its id."""
    query = select(RUNS.c.started_us).where(RUNS.c.run_id == run_id)
    stored_us = connection.execute(query).scalar()
    if stored_us is not None:
        return int(stored_us)
    start_time = run_directory.start_time(run_id)
    return 0 if start_time is None else round(start_time.timestamp() * 1_000_000)


def _to_runs(connection: Connection, rows: Sequence[Row[Any]]) -> list[Run]:
    """Runs of ``results`` rows with :data:`_RUN_COLUMNS`, restricted to them, oldest first."""
    facts = _facts(
        connection, {d for row in rows for d in (row.record, row.machine, row.environment)}
    )
    records: dict[str, Result] = {}
    first_rows: dict[int, Row[Any]] = {}
    results_by_run: dict[int, dict[str, Result]] = {}
    for row in sorted(rows, key=lambda row: (row.started_us, row.run, row.ordinal)):
        record = facts[row.record]
        if row.record not in records:
            records[row.record] = stored.restore(Result, record["result"], "the registry")
        result = replace(
            records[row.record],
            metrics={
                name: Metric(name=name, value=float(row.metrics[name]), unit=unit, better=better)
                for name, (unit, better) in record["units"].items()
            },
            launches=tuple(row.launches or ([row.metrics] if row.metrics else [])),
        )
        first_rows.setdefault(row.run, row)
        results_by_run.setdefault(row.run, {})[result.id] = result
    return [_run(row, results_by_run[key], facts) for key, row in first_rows.items()]


def _run(row: Row[Any], results: Mapping[str, Result], facts: Mapping[str, Any]) -> Run:
    same = ("run_id", "started", "status", "commit", "dirty")
    return Run(
        **{name: getattr(row, name) for name in same},
        label=row.run_id,
        branch=row.run_branch,
        machine=facts[row.machine],
        environment=facts[row.environment],
        results=results,
    )


def _overview(row: Row[Any]) -> RunOverview:
    """Overview of a ``runs`` row, without a path."""
    unmeasured = row.benchmarks - row.measured
    same = ("run_id", "experiment", "error", "started", "commit", "branch", "dirty", "regressed")
    return RunOverview(
        **{name: getattr(row, name) for name in same},
        path=None,
        state="broken" if row.error else row.status,
        outcomes={"measured": row.measured, **({"not measured": unmeasured} if unmeasured else {})},
        tags=tuple(row.tags),
    )


def _facts(connection: Connection, digests: Collection[str]) -> dict[str, Any]:
    """Facts with these digests, possibly with others from the cache."""
    # They never change, so each connection caches them.
    cache: dict[str, Any] = connection.info.setdefault("gpubench_facts", {})
    missing = sorted({*digests} - cache.keys())
    for start in range(0, len(missing), _KEYS_PER_QUERY):
        query = select(FACTS).where(FACTS.c.digest.in_(missing[start : start + _KEYS_PER_QUERY]))
        cache.update({row.digest: from_json(row.facts) for row in connection.execute(query)})
    return cache
