"""Idempotent ingestion of runs; a changed run is replaced as a whole."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Connection, Table, delete, func, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from gpubench_plugin.core.errors import ResultsError, UsageProblem
from gpubench_plugin.environment import files, json_files
from gpubench_plugin.environment.fingerprints import fingerprint_of
from gpubench_plugin.results.reader import StoredRun
from gpubench_plugin.results.registry import documents
from gpubench_plugin.results.registry.rows import beside_settings
from gpubench_plugin.results.registry.tables import BENCHMARKS, FACTS, RESULTS, RUNS, TAGS
from gpubench_plugin.results.registry.texts import clean, digest, indexed
from gpubench_plugin.results.tags import (
    TagChange,
    current_tags,
    from_text,
    tag_changes,
    tags_of,
    to_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from gpubench_plugin.core.records import Json, Result, Run
    from gpubench_plugin.results.registry.database import Database
    from gpubench_plugin.results.run_directory import RunDirectory


_AND: Final = "+"
"""Separator of the files' digest and the tags' digest."""


@dataclass(frozen=True, kw_only=True)
class RunContents:
    """Contents of a run directory to store; `state` is the digest of its files.

    `regressed` has node ids.
    """

    run: Run
    experiment: str
    state: str
    tags: frozenset[TagChange]
    regressed: frozenset[str]


def read(directory: RunDirectory) -> RunContents:
    """Read the run in `directory`; raises ResultsError."""
    state, stored = state_of(directory), StoredRun(directory)
    try:
        run = stored.run()
    except UsageProblem as error:
        raise ResultsError(str(error)) from error
    return RunContents(
        run=run,
        experiment=directory.experiment,
        state=state,
        tags=tag_changes(directory),
        regressed=frozenset(stored.regressed),
    )


def state_of(directory: RunDirectory) -> str:
    """Digest of the run's describing files, missing ones as empty; raises ResultsError."""
    unfinished = (directory.journal, directory.system)
    files_to_hash = (directory.summary,) if directory.summary.exists() else unfinished
    digest = sha256()
    for file in (directory.verdicts, *files_to_hash):
        data = _bytes(file)
        digest.update(f"{file.name} {len(data)}\n".encode())
        digest.update(data)
    return with_tags(digest.hexdigest()[:24], tags_of(directory))


def with_tags(state: str, tags: Iterable[str]) -> str:
    """Replace the tags in the `state` of a run."""
    digest = sha256("\0".join(sorted(set(tags))).encode("utf-8", "backslashreplace"))
    return f"{state.partition(_AND)[0]}{_AND}{digest.hexdigest()[:24]}"


def _bytes(file: Path) -> bytes:
    try:
        return files.read(file, limit=json_files.LIMIT_BYTES)
    except FileNotFoundError:
        return b""


TAGS_KIND: Final = "tags"
"""Kind of the documents with the tags of a run, by run id."""


def ingest(database: Database, directory: RunDirectory) -> bool:
    """Store the run in `directory`; return whether anything changed.

    Raises:
        ResultsError: the run cannot be read, or another run has its id.
    """
    with database.reading() as connection:
        if _stored_state(connection, directory.run_id)[0] == state_of(directory):
            return False
    contents = read(directory)
    with database.writing() as connection:
        lock(connection, directory.run_id)
        if state_of(directory) != contents.state:
            contents = read(directory)  # changed, maybe stored, while waiting for the lock
        return store(connection, directory.run_id, contents)


def lock(connection: Connection, run_id: str) -> None:
    """Lock the run against concurrent storing until the transaction ends."""
    if connection.dialect.name == "postgresql":
        key = int.from_bytes(sha256(run_id.encode()).digest()[:8], "big", signed=True)
        connection.execute(select(func.pg_advisory_xact_lock(key)))


def store(connection: Connection, run_id: str, contents: RunContents) -> bool:
    """Replace the stored run by `contents`; return whether anything changed.

    Raises:
        ResultsError: another run has its id.
    """
    state, started = _stored_state(connection, run_id)
    if state == contents.state:
        return False
    if started not in {None, clean(contents.run.started)}:
        raise ResultsError(
            f"a different run with id {run_id} is stored, started {started}; this one started "
            f"{contents.run.started}"
        )
    forget(connection, run_id)
    shared_facts = _Shared()
    values = _run_values(run_id, contents, shared_facts)
    rows = [
        _result_values(ordinal, result, contents, shared_facts)
        for ordinal, result in enumerate(contents.run.results.values())
    ]
    names = {digest(r.id): clean(r.id) for r in contents.run.results.values()}
    add_missing(
        connection, FACTS, ({"digest": d, "facts": f} for d, f in shared_facts.facts.items())
    )
    add_missing(connection, BENCHMARKS, ({"digest": d, "id": i} for d, i in names.items()))
    key = connection.execute(insert(RUNS).values(values).returning(RUNS.c.key)).scalar_one()
    if rows:
        connection.execute(insert(RESULTS), [{"run": key, **row} for row in rows])
    _store_tags(connection, key, run_id, contents.tags)
    return True


def forget(connection: Connection, run_id: str) -> None:
    """Delete the stored run."""
    key = select(RUNS.c.key).where(RUNS.c.run_id == indexed(run_id)).scalar_subquery()
    for table in (RESULTS, TAGS):
        connection.execute(delete(table).where(table.c.run == key))
    connection.execute(delete(RUNS).where(RUNS.c.run_id == indexed(run_id)))


def tag(connection: Connection, directory: RunDirectory) -> tuple[str, ...] | None:
    """Merge the tags of `directory` with those stored; return them, None for an unknown run."""
    lock(connection, directory.run_id)
    query = select(RUNS.c.key, RUNS.c.state).where(RUNS.c.run_id == indexed(directory.run_id))
    row = connection.execute(query.with_for_update()).first()  # its key changes in a rebuild
    if row is None:
        return None
    changes = tag_changes(directory)  # read under the lock: the last writer has all changes
    state = with_tags(row.state, current_tags(changes))
    connection.execute(update(RUNS).where(RUNS.c.key == row.key).values(state=state))
    return _store_tags(connection, row.key, directory.run_id, changes)


def add_missing(connection: Connection, table: Table, rows: Iterable[Json]) -> None:
    """Insert `rows` whose digest is not stored yet."""
    # Sorted, since writers that insert in different orders can deadlock.
    sorted_rows = sorted(rows, key=lambda row: str(row["digest"]))
    if not sorted_rows:
        return
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    connection.execute(dialect.insert(table).on_conflict_do_nothing(), sorted_rows)


@dataclass(frozen=True)
class _Shared:
    """Deduplicated facts referenced by digest."""

    facts: dict[str, Any] = field(default_factory=dict)

    def add(self, facts: Mapping[str, Any]) -> str:
        key = digest(facts)
        if key not in self.facts:
            self.facts[key] = _clean_facts(facts)
        return key


def _stored_state(connection: Connection, run_id: str) -> tuple[str | None, str | None]:
    """Stored state and start time of the run; None for an unknown one."""
    query = select(RUNS.c.state, RUNS.c.started).where(RUNS.c.run_id == indexed(run_id))
    row = connection.execute(query).first()
    return (None, None) if row is None else (row.state, row.started)


def _run_values(run_id: str, contents: RunContents, shared_facts: _Shared) -> Json:
    run = contents.run
    return {
        "run_id": indexed(run_id),
        "experiment": clean(contents.experiment),
        "started": clean(run.started),
        "started_us": to_microseconds(run.started),
        "status": run.status,
        "commit": None if run.commit is None else clean(str(run.commit)),
        "branch": None if run.branch is None else indexed(str(run.branch)),
        "dirty": None if run.dirty is None else bool(run.dirty),
        "machine": shared_facts.add(run.machine),
        "environment": shared_facts.add(run.environment),
        "benchmarks": len(run.results),
        "measured": sum(result.outcome == "measured" for result in run.results.values()),
        "regressed": bool(contents.regressed),
        "state": contents.state,
    }


def _result_values(
    ordinal: int, result: Result, contents: RunContents, shared_facts: _Shared
) -> Json:
    run = contents.run
    units = {name: [metric.unit, metric.better] for name, metric in result.metrics.items()}
    values = _finite({name: metric.value for name, metric in result.metrics.items()})
    launches = [_finite(launch) for launch in result.launches]
    return {
        "ordinal": ordinal,
        "benchmark": digest(result.id),
        "fingerprint": fingerprint_of(run.machine, result.settings, result.timer),
        "branch": indexed(str(run.branch or "")),
        "started_us": to_microseconds(run.started),
        "sample": result.outcome == "measured" and _is_comparable(run) and not contents.regressed,
        "outcome": result.outcome,
        "reason": clean(result.reason),
        "timer": clean(result.timer),
        "settings": shared_facts.add(beside_settings(result)),
        "limits": shared_facts.add(result.limits),
        "units": shared_facts.add(units),
        "flags": [clean(flag) for flag in result.flags] or None,
        "metrics": values,
        "launches": None if launches in ([], [values]) else launches,
    }


def _is_comparable(run: Run) -> bool:
    """Whether later runs may be judged against it: complete, and clean unless outside git."""
    return run.status == "complete" and run.dirty is not True


def to_microseconds(started: str) -> int:
    """An ISO 8601 time as microseconds since 1970; 0 if empty."""
    try:
        return round(datetime.fromisoformat(started).timestamp() * 1_000_000)
    except (ArithmeticError, OSError, ValueError):  # invalid, or before the year 1
        return 0


def _store_tags(
    connection: Connection, key: int, run_id: str, changes: frozenset[TagChange]
) -> tuple[str, ...]:
    """Merge `changes` into the run's stored tags; return the result."""

    def merge(old_text: str | None) -> tuple[str, str]:
        all_changes = changes | stored_tags(old_text, run_id)
        return to_text(all_changes), max(change.time for change in all_changes)

    def transaction() -> AbstractContextManager[Connection]:
        return nullcontext(connection)

    if changes:
        documents.merge(transaction, transaction, TAGS_KIND, run_id, merge)
    tags = current_tags(stored_tags(documents.text_of(connection, TAGS_KIND, run_id), run_id))
    connection.execute(delete(TAGS).where(TAGS.c.run == key))
    rows = [{"run": key, "tag": tag} for tag in sorted({indexed(tag) for tag in tags})]
    if rows:
        connection.execute(insert(TAGS), rows)
    return tags


def stored_tags(text: str | None, run_id: str) -> frozenset[TagChange]:
    """Parse the stored tag changes of a run; raises ResultsError."""
    return frozenset() if text is None else from_text(text, f"tags of {run_id} in the registry")


def _finite(values: Mapping[str, float]) -> dict[str, float]:
    return {clean(name): float(v) for name, v in values.items() if math.isfinite(v)}


def _clean_facts(facts: object) -> Any:
    if isinstance(facts, str):
        return clean(facts)
    if isinstance(facts, dict):
        return {clean(str(key)): _clean_facts(value) for key, value in facts.items()}
    if isinstance(facts, list | tuple):
        return [_clean_facts(value) for value in facts]
    return json_files.jsonable(facts)
