"""Rows of the index as records."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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


class Facts:
    """Facts by digest, as far as they were loaded; they never change."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._results: dict[str, Result] = {}

    @classmethod
    def of(cls, connection: Connection) -> Facts:
        """Those of the connection, which keeps them."""
        cached: Facts = connection.info.setdefault("gpubench_facts", cls())
        return cached

    def load(self, connection: Connection, digests: Iterable[str]) -> None:
        """Load the facts with these `digests`."""
        missing = {*digests} - self._values.keys()
        rows = by_key(connection, FACTS, "digest", missing)
        self._values.update({digest: from_json(row.facts) for digest, row in rows.items()})

    def __getitem__(self, digest: str) -> Any:
        return self._values[digest]

    def result(self, row: Row[Any]) -> Result:
        """The result of a row that has the columns ``record``, ``metrics`` and ``launches``."""
        record = self._values[row.record]
        if row.record not in self._results:
            restored = stored.restore(Result, record["result"], "the registry")
            self._results[row.record] = restored
        return replace(
            self._results[row.record],
            metrics=Metrics(row.metrics, record["units"]),
            launches=tuple(row.launches or ([row.metrics] if row.metrics else [])),
        )


def to_runs(connection: Connection, results: Sequence[Row[Any]]) -> list[Run]:
    """Runs of these ``results`` rows, restricted to them, oldest first."""
    runs = by_key(connection, RUNS, "key", {row.run for row in results})
    facts = Facts.of(connection)
    facts.load(connection, {row.record for row in results})
    facts.load(connection, {d for row in runs.values() for d in (row.machine, row.environment)})
    results_by_run: dict[int, dict[str, Result]] = {}
    for row in sorted(results, key=lambda row: (row.run, row.ordinal)):
        result = facts.result(row)
        results_by_run.setdefault(row.run, {})[result.id] = result
    sorted_keys = sorted(results_by_run, key=lambda key: (runs[key].started_us, key))
    return [
        Run(
            label=runs[key].run_id,
            **common_fields(runs[key]),
            status=runs[key].status,
            dirty=runs[key].dirty,
            machine=facts[runs[key].machine],
            environment=facts[runs[key].environment],
            results=results_by_run[key],
        )
        for key in sorted_keys
    ]


def common_fields(row: Row[Any]) -> dict[str, Any]:
    """Fields of a run that every query has."""
    return {name: getattr(row, name) for name in ("run_id", "started", "commit", "branch")}


def overview(row: Row[Any]) -> RunOverview:
    """Overview of a ``runs`` row, without a path."""
    unmeasured = row.benchmarks - row.measured
    return RunOverview(
        **common_fields(row),
        experiment=row.experiment,
        path=None,
        state="broken" if row.error else row.status or "interrupted",
        error=row.error,
        dirty=row.dirty,
        outcomes={"measured": row.measured, **({"not measured": unmeasured} if unmeasured else {})},
        regressed=row.regressed,
        tags=tuple(row.tags),
    )


def by_key(
    connection: Connection, table: Any, column: str, keys: Collection[Any]
) -> dict[Any, Row[Any]]:
    """Rows of `table` by `column`, restricted to `keys`."""
    sorted_keys = sorted(keys)
    rows_by_key = {}
    for start in range(0, len(sorted_keys), _BATCH):
        query = select(table).where(table.c[column].in_(sorted_keys[start : start + _BATCH]))
        rows_by_key.update({getattr(row, column): row for row in connection.execute(query)})
    return rows_by_key
