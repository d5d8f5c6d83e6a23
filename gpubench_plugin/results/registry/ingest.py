"""From run directories to documents, and from documents to the index.

A document holds what is kept of a run: its summary (of a killed run what its journal has), verdicts
and tags. It is replaced as a whole, and the rows of the index with it.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Final

from pydantic_core import from_json
from sqlalchemy import Connection, delete, insert, select
from sqlalchemy.dialects import postgresql, sqlite

from gpubench_plugin.core.errors import GpubenchError, ResultsError, UsageProblem
from gpubench_plugin.core.records import Json, Result, Run
from gpubench_plugin.environment.fingerprints import fingerprint_of
from gpubench_plugin.results import summary, verdicts
from gpubench_plugin.results.reader import StoredRun, intact, is_being_written, run_of_summary
from gpubench_plugin.results.registry import documents
from gpubench_plugin.results.registry.database import Database, lock
from gpubench_plugin.results.registry.documents import RUN, digest
from gpubench_plugin.results.registry.tables import FACTS, RESULTS, RUNS
from gpubench_plugin.results.run_directory import RunDirectory, path_component, runs_in, tags_of
from gpubench_plugin.system import json_files, stored

_LONGEST: Final = 200
"""Characters of an indexed text: PostgreSQL limits B-tree entries to about 2.7 kB."""


@dataclass(kw_only=True)
class Report:
    """Numbers of runs stored, unchanged, in progress or left for later, and errors to fix."""

    stored: int = 0
    unchanged: int = 0
    in_progress: int = 0
    left: int = 0
    errors: list[str] = field(default_factory=list)


def ingest_all(
    database: Database, results_dir: Path, *, check_all: bool, limit_s: float = math.inf
) -> Report:
    """Store the runs below `results_dir` that are new or changed, and index what is not indexed.

    With `check_all` the contents of all runs are compared, else only of those with files newer
    than what is stored. What takes longer than `limit_s` is left for later, the oldest runs first.

    Raises:
        RegistryError: the database cannot be used now; what was stored before stays.
    """
    deadline = time.monotonic() + limit_s
    report = Report()
    with database.reading() as connection:
        changes = documents.changes(connection, RUN)
    for directory in reversed(runs_in(results_dir)):
        if not check_all and _changed_us(directory) <= changes.get(directory.run_id, -1):
            report.unchanged += 1
        elif is_being_written(directory):
            report.in_progress += 1
        elif time.monotonic() > deadline:
            report.left += 1
        else:
            _try_to_ingest(database, directory, report)
    _index_documents(database, deadline, report)
    return report


def _try_to_ingest(database: Database, directory: RunDirectory, report: Report) -> None:
    try:
        was_stored = ingest(database, directory)
    except ResultsError as error:
        report.errors.append(str(error))
        return
    report.stored += was_stored
    report.unchanged += not was_stored


def _index_documents(database: Database, deadline: float, report: Report) -> None:
    """Index documents that clients of other schemas stored, and forget those that they removed."""
    with database.reading() as connection:
        missing, stale = documents.not_indexed(connection)
    for run_id in stale:
        with database.writing() as connection:
            unindex(connection, run_id)
    for run_id in sorted(missing, reverse=True):
        if time.monotonic() > deadline:
            report.left += 1
            continue
        with database.writing() as connection:
            lock(connection, run_id)
            index(connection, run_id)


def ingest(database: Database, directory: RunDirectory) -> bool:
    """Store the run in `directory`; return whether anything changed.

    Raises:
        ResultsError: the run cannot be read, or another run has its id.
    """
    with database.writing() as connection:
        lock(connection, directory.run_id)
        # Read under the lock, so that the last of several writers stores what all of them did.
        old = documents.read(connection, RUN, directory.run_id)
        changed_us, text = _changed_us(directory), _document_of(directory, old)
        if old == text:
            documents.touch(connection, RUN, directory.run_id, changed_us)
            return False
        new = contents(directory.run_id, text)
        stored_start = json.loads(old)["summary"]["started"] if old else new.run.started
        if new.run.started != stored_start:
            raise ResultsError(
                f"a different run with id {directory.run_id} is stored, started {stored_start}; "
                f"this one started {new.run.started}"
            )
        documents.swap(connection, RUN, directory.run_id, old, text, changed_us=changed_us)
        _index(connection, directory.run_id, text, new)
        return True


def tag(
    connection: Connection, run_id: str, *, add: Collection[str], remove: Collection[str]
) -> tuple[str, ...]:
    """Change the tags of a stored run whose directory is elsewhere or gone; return the result."""
    for name in add:
        path_component("tag", name)
    lock(connection, run_id)
    old = documents.read(connection, RUN, run_id)
    if old is None:
        raise ResultsError(f"{run_id} was removed from the registry just now")
    document = json.loads(old)
    tags = tuple(sorted({*document["tags"], *add} - {*remove}))
    text = json.dumps({**document, "tags": tags})
    documents.swap(connection, RUN, run_id, old, text)
    _index(connection, run_id, text, contents(run_id, text))
    return tags


def _document_of(directory: RunDirectory, old: str | None) -> str:
    """The document of the run in `directory`, with the tags of the `old` one if it has no file.

    Raises:
        ResultsError: it cannot be read.
    """
    try:
        if directory.summary.exists():
            fields = json_files.load(directory.summary)
        else:
            fields = json_files.jsonable(summary.document_of(StoredRun(directory).record()))
        has_verdicts = directory.verdicts.exists()
        judged = verdicts.FORMAT.load(directory.verdicts) if has_verdicts else None
    except UsageProblem as error:
        raise ResultsError(str(error)) from error
    has_tags = old is None or directory.tags.exists()
    tags = tags_of(directory) if has_tags else json.loads(old or "{}")["tags"]
    document = {
        "experiment": directory.experiment,
        "summary": fields,
        "verdicts": judged,
        "tags": tags,
    }
    with intact(directory):
        directory.run_id.encode()  # a folder's name need not be Unicode, a row's must
        return json.dumps(document, allow_nan=False)


def _changed_us(directory: RunDirectory) -> int:
    """When the run was last written: files are renamed into its folder, the journal grows."""
    try:
        times_ns = [path.stat().st_mtime_ns for path in (directory.path, directory.journal)]
    except OSError:  # removed just now
        return 0
    return max(times_ns) // 1000


@dataclass(frozen=True, kw_only=True)
class RunContents:
    """What a document says; the run has no path."""

    run: Run
    experiment: str
    tags: tuple[str, ...] = ()
    regressed: bool = False


def contents(run_id: str, text: str) -> RunContents:
    """Parse the document of a run; raises ResultsError."""
    label = Path(f"the registry's document of {run_id}")
    with intact(label):
        document = from_json(text)
        run = run_of_summary(label, document["summary"], run_id)
        judged = document["verdicts"]
        return RunContents(
            run=replace(run, path=None),
            experiment=document["experiment"],
            tags=tuple(document["tags"]),
            regressed=judged is not None and bool(verdicts.regressed_benchmarks(judged)),
        )


def index(connection: Connection, run_id: str) -> None:
    """Index a document of any age; one that cannot be read is listed with its error."""
    unindex(connection, run_id)
    text_digest = documents.digest_of(connection, RUN, run_id)
    try:
        text = documents.read(connection, RUN, run_id)
        if text is not None:  # else it was removed just now
            _index(connection, run_id, text, contents(run_id, text))
    except GpubenchError as error:
        values = {"run_id": run_id, "digest": text_digest, "error": str(error)}
        connection.execute(insert(RUNS).values({**_UNREADABLE, **values}))


_UNREADABLE: Final = {
    **dict.fromkeys(("experiment", "started", "machine", "environment"), ""),
    **dict.fromkeys(("started_us", "benchmarks", "measured"), 0),
    "regressed": False,
    "tags": [],
}


def unindex(connection: Connection, run_id: str) -> None:
    """Remove the run from the index."""
    key = select(RUNS.c.key).where(RUNS.c.run_id == run_id).scalar_subquery()
    connection.execute(delete(RESULTS).where(RESULTS.c.run == key))
    connection.execute(delete(RUNS).where(RUNS.c.run_id == run_id))


def _index(connection: Connection, run_id: str, text: str, parsed: RunContents) -> None:
    unindex(connection, run_id)
    facts: dict[str, str] = {}
    run_values = _run_values(parsed, facts)
    rows = [
        {"ordinal": ordinal, **_result_values(result, parsed, facts)}
        for ordinal, result in enumerate(parsed.run.results.values())
    ]
    _add_facts(connection, facts)
    values = {"run_id": run_id, "digest": digest(text), "error": "", **run_values}
    key = connection.execute(insert(RUNS).values(values).returning(RUNS.c.key)).scalar_one()
    if rows:
        connection.execute(insert(RESULTS), [{"run": key, **row} for row in rows])


def _add_facts(connection: Connection, facts: Mapping[str, str]) -> None:
    # Sorted, since writers that insert in different orders can deadlock.
    rows = [{"digest": key, "facts": facts[key]} for key in sorted(facts)]
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    connection.execute(dialect.insert(FACTS).on_conflict_do_nothing(), rows)


def _shared(value: object, facts: dict[str, str]) -> str:
    """Add `value` to `facts`; return its digest."""
    text = json.dumps(value, sort_keys=True)
    key = digest(text)
    facts[key] = text
    return key


def _run_values(parsed: RunContents, facts: dict[str, str]) -> Json:
    run = parsed.run
    return {
        "experiment": _column(parsed.experiment),
        "started": _column(run.started),
        "started_us": to_microseconds(run.started),
        "status": run.status,
        "commit": None if run.commit is None else _column(run.commit),
        "branch": None if run.branch is None else _column(run.branch),
        "dirty": run.dirty,
        "machine": _shared(run.machine, facts),
        "environment": _shared(run.environment, facts),
        "benchmarks": len(run.results),
        "measured": sum(result.outcome == "measured" for result in run.results.values()),
        "regressed": parsed.regressed,
        "tags": parsed.tags,
    }


def _result_values(result: Result, parsed: RunContents, facts: dict[str, str]) -> Json:
    run = parsed.run
    metrics = {name: metric.value for name, metric in result.metrics.items()}
    launches = [dict(launch) for launch in result.launches]
    units = {name: [metric.unit, metric.better] for name, metric in result.metrics.items()}
    beside = stored.dump(replace(result, metrics={}, launches=(), configuration={}))
    # Later runs may be judged against complete ones, clean unless outside git.
    is_comparable = run.status == "complete" and run.dirty is not True and not parsed.regressed
    return {
        "benchmark": _shared(result.id, facts),
        "fingerprint": fingerprint_of(run.machine, result.settings, result.timer),
        "branch": _column(run.branch or ""),
        "started_us": to_microseconds(run.started),
        "sample": result.outcome == "measured" and is_comparable,
        "record": _shared({"result": beside, "units": units}, facts),
        "metrics": metrics,
        "launches": None if launches in ([], [metrics]) else launches,
    }


def _column(text: str) -> str:
    """`text` as a column holds it: PostgreSQL has no null characters."""
    return text.replace("\0", "\\x00")[:_LONGEST]


def branch_column(branch: str | None) -> str | None:
    """A branch as the index has it."""
    return None if branch is None else _column(branch)


def benchmark_digest(node_id: str) -> str:
    """The column ``benchmark`` of a node id."""
    return _shared(node_id, {})


def to_microseconds(started: str) -> int:
    """An ISO 8601 time as microseconds since 1970; 0 if it is none."""
    try:
        return round(datetime.fromisoformat(started).timestamp() * 1_000_000)
    except (ArithmeticError, OSError, ValueError):  # before the year 1, too
        return 0
