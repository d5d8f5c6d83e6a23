"""Rows of the index as records."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pydantic_core import from_json
from sqlalchemy import select

from gpubench_plugin.core.records import Better, Metric, Result, Run
from gpubench_plugin.environment import stored
from gpubench_plugin.results.reader import RunOverview
from gpubench_plugin.results.registry.tables import FACTS, RUNS

if TYPE_CHECKING:
    from sqlalchemy import Connection, Row

_BATCH: Final = 500
"""Keys per query: SQLite allows 32,766 parameters, but shorter queries parse faster."""


class Metrics(Mapping[str, Metric]):
    """Metrics that are built when asked for, since queries return many but few are used."""

    def __init__(self, values: Mapping[str, float], units: Mapping[str, tuple[str, Better]]):
        self._values = values
        self._units = units

    def __getitem__(self, name: str) -> Metric:
        unit, better = self._units[name]
        return Metric(name=name, value=float(self._values[name]), unit=unit, better=better)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, name: object) -> bool:
        return name in self._values


RUN_COLUMNS: Final = (
    *(RUNS.c.run_id, RUNS.c.started, RUNS.c.status, RUNS.c.commit, RUNS.c.dirty),
    *(RUNS.c.machine, RUNS.c.environment, RUNS.c.branch.label("run_branch")),
)
"""What :func:`to_runs` needs beside the columns of ``results``."""


def to_runs(connection: Connection, rows: Sequence[Row[Any]]) -> list[Run]:
    """Runs of these ``results`` rows with :data:`RUN_COLUMNS`, restricted to them, oldest first."""
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
            metrics=Metrics(row.metrics, record["units"]),
            launches=tuple(row.launches or ([row.metrics] if row.metrics else [])),
        )
        first_rows.setdefault(row.run, row)
        results_by_run.setdefault(row.run, {})[result.id] = result
    return [_run(row, results_by_run[key], facts) for key, row in first_rows.items()]


def _run(row: Row[Any], results: Mapping[str, Result], facts: Mapping[str, Any]) -> Run:
    return Run(
        label=row.run_id,
        run_id=row.run_id,
        started=row.started,
        status=row.status,
        commit=row.commit,
        branch=row.run_branch,
        dirty=row.dirty,
        machine=facts[row.machine],
        environment=facts[row.environment],
        results=results,
    )


def overview(row: Row[Any]) -> RunOverview:
    """Overview of a ``runs`` row, without a path."""
    unmeasured = row.benchmarks - row.measured
    return RunOverview(
        run_id=row.run_id,
        experiment=row.experiment,
        path=None,
        state="broken" if row.error else row.status,
        error=row.error,
        started=row.started,
        commit=row.commit,
        branch=row.branch,
        dirty=row.dirty,
        outcomes={"measured": row.measured, **({"not measured": unmeasured} if unmeasured else {})},
        regressed=row.regressed,
        tags=tuple(row.tags),
    )


def _facts(connection: Connection, digests: Collection[str]) -> dict[str, Any]:
    """Facts with these digests, possibly with others from the cache."""
    # They never change, so each connection caches them.
    cache: dict[str, Any] = connection.info.setdefault("gpubench_facts", {})
    missing = sorted({*digests} - cache.keys())
    for start in range(0, len(missing), _BATCH):
        query = select(FACTS).where(FACTS.c.digest.in_(missing[start : start + _BATCH]))
        cache.update({row.digest: from_json(row.facts) for row in connection.execute(query)})
    return cache
