"""Rows of the registry as records: runs and overviews."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from gpubench_plugin.core.errors import RegistryError
from gpubench_plugin.core.records import Better, Metric, Result, Run
from gpubench_plugin.environment import stored
from gpubench_plugin.environment.fingerprints import informative_facts, machine_facts
from gpubench_plugin.environment.json_files import MALFORMED
from gpubench_plugin.results.reader import RunOverview
from gpubench_plugin.results.registry.database import REBUILD
from gpubench_plugin.results.registry.tables import BENCHMARKS, FACTS, RUNS

if TYPE_CHECKING:
    from sqlalchemy import Connection, Row


_BETTER = ("higher", "lower", "none")
_BATCH = 500
"""Keys per query: SQLite allows 32,766 parameters, but shorter queries parse faster."""


def to_runs(connection: Connection, results: Sequence[Row[Any]]) -> list[Run]:
    """Runs of these ``results`` rows, restricted to them, oldest first."""
    runs = by_key(connection, RUNS, "key", {row.run for row in results})
    digests = {row.machine for row in runs.values()} | {row.environment for row in runs.values()}
    digests |= {d for row in results for d in (row.settings, row.limits, row.units)}
    facts_by_digest = facts(connection, digests)
    names = by_key(connection, BENCHMARKS, "digest", {row.benchmark for row in results})
    results_by_run: dict[int, dict[str, Result]] = {}
    for row in sorted(results, key=lambda row: (row.run, row.ordinal)):
        result = _result(row, names[row.benchmark].id, facts_by_digest)
        results_by_run.setdefault(row.run, {})[result.id] = result
    sorted_keys = sorted(results_by_run, key=lambda key: (runs[key].started_us, key))
    return [_run(runs[key], results_by_run[key], facts_by_digest) for key in sorted_keys]


def overview(row: Row[Any], tags: Iterable[str]) -> RunOverview:
    """Overview of a ``runs`` row with these `tags`, without a path."""
    unmeasured = row.benchmarks - row.measured
    return RunOverview(
        run_id=stored_text(row.run_id),
        experiment=stored_text(row.experiment),
        path=None,
        state=row.status or "interrupted",
        started=stored_text(row.started),
        commit=row.commit and stored_text(row.commit),
        branch=row.branch and stored_text(row.branch),
        dirty=row.dirty,
        outcomes={"measured": row.measured, **({"not measured": unmeasured} if unmeasured else {})},
        regressed=row.regressed,
        tags=tuple(map(stored_text, tags)),
    )


def run_without_results(connection: Connection, row: Row[Any]) -> Run:
    """The run of a ``runs`` row, without results."""
    return _run(row, {}, facts(connection, {row.machine, row.environment}))


def facts(connection: Connection, digests: Collection[str]) -> dict[str, Any]:
    """Facts with these digests, possibly with others from the cache."""
    # They never change, so each connection caches them.
    cache: dict[str, Any] = connection.info.setdefault("gpubench_facts", {})
    missing = [digest for digest in digests if digest not in cache]
    loaded_rows = by_key(connection, FACTS, "digest", missing)
    cache.update({digest: row.facts for digest, row in loaded_rows.items()})
    return cache


def _run(row: Row[Any], results: Mapping[str, Result], facts: Mapping[str, Any]) -> Run:
    # Facts compared today may have been informative when an earlier version stored the run.
    all_facts = {**mapping(facts[row.environment]), **mapping(facts[row.machine])}
    return Run(
        label=stored_text(row.run_id),
        run_id=row.run_id,
        started=stored_text(row.started),
        status=row.status,
        commit=row.commit,
        branch=row.branch,
        dirty=row.dirty,
        machine=machine_facts(all_facts),
        environment=informative_facts(all_facts),
        results=results,
    )


def _result(row: Row[Any], node_id: str, facts: Mapping[str, Any]) -> Result:
    launches = row.launches or ([row.metrics] if row.metrics else [])
    settings, beside = apart(mapping(facts[row.settings]))
    return Result(
        id=stored_text(node_id),
        outcome=row.outcome,
        reason=stored_text(row.reason),
        timer=stored_text(row.timer),
        metrics=Metrics(row.metrics, facts[row.units]),
        launches=tuple(map(mapping, launches)),
        settings=settings,
        **beside,
        limits=mapping(facts[row.limits]),
        flags=tuple(map(stored_text, row.flags or ())),
    )


_WORK = "work."
"""Key prefix of amounts of work, stored beside the settings, whose keys never have it."""

_FIELD = "record."
"""Key prefix of other non-default fields of a result, stored beside the settings."""
_IN_COLUMNS = frozenset(
    {
        *("id", "outcome", "reason", "timer", "metrics", "launches", "settings", "limits", "flags"),
        *("work", "configuration", "pinned", "foreign"),
    }
)
"""Fields of a result with a column of their own, or not stored."""
_OTHERS = tuple(field.name for field in fields(Result) if field.name not in _IN_COLUMNS)


def beside_settings(result: Result) -> dict[str, Any]:
    """Merge settings, amounts of work (empty and unrecorded differ) and other fields to store."""
    default = Result(id=result.id, outcome=result.outcome)
    others = [name for name in _OTHERS if getattr(result, name) != getattr(default, name)]
    dumped = stored.dump(result) if others else {}
    amounts = {f"{_WORK}{name}": amount for name, amount in (result.work or {}).items()}
    return {
        **result.settings,
        **(amounts or ({} if result.work is None else {_WORK: None})),
        **{f"{_FIELD}{name}": dumped[name] for name in others},
    }


def apart(together: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split the output of :func:`beside_settings` into settings and other fields of a result."""
    settings = {k: v for k, v in together.items() if not k.startswith((_WORK, _FIELD))}
    if len(settings) == len(together):
        return settings, {}
    amounts = {k.removeprefix(_WORK): v for k, v in together.items() if k.startswith(_WORK)}
    work = {name: amount for name, amount in amounts.items() if name} if amounts else None
    others = {name: together[_FIELD + name] for name in _OTHERS if _FIELD + name in together}
    if others:
        required = {"id": "of the others", "outcome": "measured"}
        record = stored.restore(Result, {**required, **others}, "the registry")
        others = {name: getattr(record, name) for name in others}
    return settings, {"work": work, **others}


class Metrics(Mapping[str, Metric]):
    """Lazily parsed metrics, since queries return many but few are used.

    Access to a malformed one raises RegistryError.
    """

    def __init__(self, values: Mapping[str, float], units: Mapping[str, tuple[str, Better]]):
        self._values = mapping(values)
        self._units = mapping(units)

    def __getitem__(self, name: str) -> Metric:
        value = self._values[name]
        try:
            unit, better = self._units[name]
            if better not in _BETTER:
                raise ValueError(f"{better!r:.40} is not a direction")
            return Metric(name=name, value=float(value), unit=stored_text(unit), better=better)
        except MALFORMED as error:
            raise RegistryError(f"the registry: {name}: {error!r:.200}; {REBUILD}") from error

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __repr__(self) -> str:
        return repr(dict(self))


def stored_text(value: object) -> str:
    """`value` as text; raises TypeError otherwise."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is not text")
    return value


def mapping(value: object) -> dict[str, Any]:
    """`value` as a JSON object; raises TypeError otherwise."""
    if not isinstance(value, dict):
        raise TypeError(f"{value!r:.40} is not an object")
    return value


def by_key(
    connection: Connection, table: Any, column: str, keys: Iterable[Any]
) -> dict[Any, Row[Any]]:
    """Rows of `table` by `column`, restricted to `keys`."""
    from sqlalchemy import select

    sorted_keys = sorted(keys)
    rows_by_key = {}
    for start in range(0, len(sorted_keys), _BATCH):
        query = select(table).where(table.c[column].in_(sorted_keys[start : start + _BATCH]))
        rows_by_key.update({getattr(row, column): row for row in connection.execute(query)})
    return rows_by_key
