"""From run directories to documents, and from documents to the index.

A document holds what is kept of a run: its summary (of a killed run what its journal has), verdicts
and tags. It is replaced as a whole, and the rows of the index with it. Summary and verdicts are
those of the run's directory. The tags are the document's own: ``tags.json`` is read only for a run
without a document.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, delete, insert, select

from gpubench_plugin.core.errors import BrokenFile, GpubenchError, ResultsError, UsageProblem
from gpubench_plugin.core.records import Json, Result, Run
from gpubench_plugin.environment.fingerprints import fingerprint_of
from gpubench_plugin.results import summary, verdicts
from gpubench_plugin.results.reader import RunReader, intact, is_being_written, run_of_summary
from gpubench_plugin.results.registry import documents
from gpubench_plugin.results.registry.database import Database, lock
from gpubench_plugin.results.registry.documents import RUN, digest
from gpubench_plugin.results.registry.tables import FACTS, RESULTS, RUNS
from gpubench_plugin.results.run_directory import RunDirectory, runs_in, tags_of
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
            try:
                was_stored = ingest(database, directory)
                report.stored += was_stored
                report.unchanged += not was_stored
            except (ResultsError, UsageProblem) as error:  # also a file that was removed just now
                report.errors.append(str(error))
    _index_documents(database, deadline, report)
    if check_all:
        with database.reading() as connection:
            unreadable = select(RUNS.c.error).where(RUNS.c.error != "").order_by(RUNS.c.run_id)
            report.errors += connection.execute(unreadable).scalars()
    return report


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
        old, known = readable(connection, directory.run_id)
        changed_us = _changed_us(directory)
        with intact(directory):
            directory.run_id.encode()  # a folder's name need not be Unicode, a row's must
            new = _document_of(directory, known)
            text = json.dumps(vars(new), allow_nan=False)
        if old == text:
            documents.touch(connection, RUN, directory.run_id, changed_us)
            return False
        started, stored_start = (d and d.summary.get("started") for d in (new, known))
        if stored_start not in (None, started):
            raise ResultsError(
                f"a different run with id {directory.run_id} is stored, started {stored_start}; "
                f"this one started {started}"
            )
        if old is None:
            documents.remove(connection, RUN, directory.run_id)  # one that cannot be read
        documents.swap(connection, RUN, directory.run_id, old, text, changed_us=changed_us)
        _index(connection, directory.run_id, text)
        return True


@dataclass(frozen=True, kw_only=True)
class Document:
    """A document of a run, whose summary and verdicts are not validated."""

    experiment: str
    summary: Json
    verdicts: Json | None
    tags: tuple[str, ...]

    @classmethod
    def parse(cls, run_id: str, text: str) -> Document:
        """Parse the text of a document; raises BrokenFile."""
        label = f"the registry's document of {run_id}"
        return stored.restore(Document, json_files.parse(text.encode(), label), label)


def readable(connection: Connection, run_id: str) -> tuple[str | None, Document | None]:
    """The document of a run, as text and parsed; None if there is none that can be read."""
    try:
        text = documents.read(connection, RUN, run_id)
        return text, None if text is None else Document.parse(run_id, text)
    except BrokenFile:
        return None, None


def _document_of(directory: RunDirectory, known: Document | None) -> Document:
    """The document of the run in `directory`, with the tags of the `known` one, if any."""
    if directory.summary.exists():
        fields = summary.FORMAT.load(directory.summary)
    else:
        fields = json_files.jsonable(summary.document_of(RunReader(directory).record()))
    return Document(
        experiment=directory.experiment,
        summary=fields,
        verdicts=verdicts.FORMAT.load(directory.verdicts) if directory.verdicts.exists() else None,
        tags=tags_of(directory) if known is None else known.tags,
    )


def _changed_us(directory: RunDirectory) -> int:
    """When the run was last written: files are renamed into its folder, the journal grows."""
    try:
        times_ns = [path.stat().st_mtime_ns for path in (directory.path, directory.journal)]
    except OSError:  # removed just now
        return 0
    return max(times_ns) // 1000


def contents(run_id: str, text: str) -> tuple[Document, Run, bool]:
    """Parse the document of a run, its run without a path, and whether that regressed.

    Raises:
        ResultsError: it cannot be read.
    """
    label = Path(f"the registry's document of {run_id}")
    document = Document.parse(run_id, text)
    with intact(label):
        judged = document.verdicts and verdicts.parse(document.verdicts, str(label))
        run = replace(run_of_summary(label, document.summary, run_id), path=None)
        return document, run, bool(judged and judged.regressed)


def index(connection: Connection, run_id: str) -> None:
    """Index a document of any age; one that cannot be read is listed with its error."""
    unindex(connection, run_id)
    text_digest = documents.digest_of(connection, RUN, run_id)
    try:
        text = documents.read(connection, RUN, run_id)
        if text is not None:  # else it was removed just now
            _index(connection, run_id, text)
    except GpubenchError as error:
        values = {"run_id": run_id, "digest": text_digest, "error": str(error)}
        connection.execute(insert(RUNS).values(values))


def unindex(connection: Connection, run_id: str) -> None:
    """Remove the run from the index."""
    key = select(RUNS.c.key).where(RUNS.c.run_id == run_id).scalar_subquery()
    connection.execute(delete(RESULTS).where(RESULTS.c.run == key))
    connection.execute(delete(RUNS).where(RUNS.c.run_id == run_id))


def _index(connection: Connection, run_id: str, text: str) -> None:
    document, run, regressed = contents(run_id, text)
    unindex(connection, run_id)
    facts: dict[str, str] = {}
    run_values = _run_values(document, run, regressed, facts)
    rows = [
        {"ordinal": ordinal, **_result_values(result, run, regressed, facts)}
        for ordinal, result in enumerate(run.results.values())
    ]
    _add_facts(connection, facts)
    values = {"run_id": run_id, "digest": digest(text), "error": "", **run_values}
    key = connection.execute(insert(RUNS).values(values).returning(RUNS.c.key)).scalar_one()
    if rows:
        connection.execute(insert(RESULTS), [{"run": key, **row} for row in rows])


def _add_facts(connection: Connection, facts: Mapping[str, str]) -> None:
    # Sorted, since writers that insert in different orders can deadlock.
    rows = [{"digest": key, "facts": facts[key]} for key in sorted(facts)]
    connection.execute(documents.insert_missing(connection, FACTS), rows)


def _shared(value: object, facts: dict[str, str]) -> str:
    """Add `value` to `facts`; return its digest."""
    text = json.dumps(value, sort_keys=True)
    key = digest(text)
    facts[key] = text
    return key


def _run_values(document: Document, run: Run, regressed: bool, facts: dict[str, str]) -> Json:
    return {
        "experiment": column(document.experiment),
        "started": column(run.started),
        "started_us": to_microseconds(run.started),
        "status": run.status,
        "commit": column(run.commit),
        "branch": column(run.branch),
        "dirty": run.dirty,
        "machine": _shared(run.machine, facts),
        "environment": _shared(run.environment, facts),
        "benchmarks": len(run.results),
        "measured": len(run.measured),
        "regressed": regressed,
        "tags": document.tags,
    }


def _result_values(result: Result, run: Run, regressed: bool, facts: dict[str, str]) -> Json:
    metrics = {name: metric.value for name, metric in result.metrics.items()}
    launches = [dict(launch) for launch in result.launches]
    units = {name: [metric.unit, metric.better] for name, metric in result.metrics.items()}
    beside = stored.dump(replace(result, metrics={}, launches=(), configuration={}))
    # Later runs may be judged against complete ones, clean unless outside git.
    is_comparable = run.status == "complete" and run.dirty is not True and not regressed
    return {
        "benchmark": _shared(result.id, facts),
        "fingerprint": fingerprint_of(run.machine_of(result), result.settings, result.timer),
        "branch": column(run.branch or ""),
        "started_us": to_microseconds(run.started),
        "sample": result.outcome == "measured" and is_comparable,
        "record": _shared({"result": beside, "units": units}, facts),
        "metrics": metrics,
        "launches": None if launches in ([], [metrics]) else launches,
    }


def column(text: str | None) -> str | None:
    """`text` as the index has it: PostgreSQL has no null characters."""
    return None if text is None else text.replace("\0", "\\x00")[:_LONGEST]


def benchmark_digest(node_id: str) -> str:
    """The column ``benchmark`` of a node id."""
    return _shared(node_id, {})


def to_microseconds(started: str) -> int:
    """An ISO 8601 time as microseconds since 1970; 0 if it is none."""
    try:
        return round(datetime.fromisoformat(started).timestamp() * 1_000_000)
    except (ArithmeticError, OSError, ValueError):  # before the year 1, too
        return 0
