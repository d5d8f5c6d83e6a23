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
    from sqlalchemy import Column, Connection, Row

_BATCH: Final = 500
"""Keys per query: SQLite allows 32,766 parameters, but shorter queries parse faster."""


class Metrics(Mapping[str, Metric]):
    """Metrics that are built when asked for, since queries return many but few are used."""

    def __init__(self, values: Mapping[str, float], units: Mapping[str, tuple[str, Better]]):
        self._values = {name: (float(value), *units[name]) for name, value in values.items()}

    def __getitem__(self, name: str) -> Metric:
        value, unit, better = self._values[name]
        return Metric(name=name, value=value, unit=unit, better=better)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, name: object) -> bool:
        return name in self._values


def to_runs(connection: Connection, results: Sequence[Row[Any]]) -> list[Run]:
    """Runs of these ``results`` rows, restricted to them, oldest first."""
    runs = _by_key(connection, RUNS.c.key, {row.run for row in results})
    digests = {digest for row in runs.values() for digest in (row.machine, row.environment)}
    facts = _facts(connection, digests | {row.record for row in results})
    records: dict[str, Result] = {}
    results_by_run: dict[int, dict[str, Result]] = {}
    for row in sorted(results, key=lambda row: (row.run, row.ordinal)):
        record = facts[row.record]
        if row.record not in records:
            records[row.record] = stored.restore(Result, record["result"], "the registry")
        result = replace(
            records[row.record],
            metrics=Metrics(row.metrics, record["units"]),
            launches=tuple(row.launches or ([row.metrics] if row.metrics else [])),
        )
        results_by_run.setdefault(row.run, {})[result.id] = result
    sorted_keys = sorted(results_by_run, key=lambda key: (runs[key].started_us, key))
    return [_run(runs[key], results_by_run[key], facts) for key in sorted_keys]


def _run(row: Row[Any], results: Mapping[str, Result], facts: Mapping[str, Any]) -> Run:
    return Run(
        label=row.run_id,
        run_id=row.run_id,
        started=row.started,
        status=row.status,
        commit=row.commit,
        branch=row.branch,
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
    rows = _by_key(connection, FACTS.c.digest, {*digests} - cache.keys())
    cache.update({digest: from_json(row.facts) for digest, row in rows.items()})
    return cache


def _by_key(
    connection: Connection, column: Column[Any], keys: Collection[Any]
) -> dict[Any, Row[Any]]:
    """Rows of a table by the `column`, restricted to `keys`."""
    sorted_keys = sorted(keys)
    rows_by_key = {}
    for start in range(0, len(sorted_keys), _BATCH):
        query = select(column.table).where(column.in_(sorted_keys[start : start + _BATCH]))
        rows_by_key.update({getattr(row, column.name): row for row in connection.execute(query)})
    return rows_by_key
