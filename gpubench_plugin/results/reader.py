"""Readers of run directories: a run's record, its overview, and an earlier run opened to go on.

A run's record can be read whether it has ended or not.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gpubench_plugin.environment import KernelLock, code, json_files
from gpubench_plugin.errors import BrokenFile, GpubenchError, ResultsError, UsageProblem
from gpubench_plugin.records import Measurement, RunRecord, is_regression
from gpubench_plugin.results import journal
from gpubench_plugin.results.journal import Journal
from gpubench_plugin.results.tags import tags_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pydantic import TypeAdapter

    from gpubench_plugin.records import Json, RunStatus
    from gpubench_plugin.results.run_directory import RunDirectory


def read_record(directory: RunDirectory) -> RunRecord:
    """The record of the run in `directory`, with all samples.

    A run without an end was killed or is still being written: its status is ``interrupted``,
    `finished` is the time of its last line, and a benchmark without a record ``not_measured``.

    Raises:
        ResultsError: a file of it cannot be read or is not as it was written.
    """
    try:
        events = events_of(directory)
        beginning = beginning_of(directory, events)
        measurements = measurements_of(
            configurations_of(directory), beginning.get("params", {}), events
        )
        return RunRecord(
            run_id=beginning["run_id"],
            experiment=directory.experiment,
            status=status_of(events),
            started=beginning["time"],
            resumed=tuple(e["time"] for e in events if e["event"] == "run_resumed"),
            finished=events[-1]["time"],
            command=tuple(map(str, beginning["command"])),
            environment=environment_of(directory),
            benchmarks=tuple(measurements.values()),
        )
    except json_files.MALFORMED as error:
        raise BrokenFile(f"{directory} is not as it was written: {error!r:.200}") from error


def events_of(directory: RunDirectory) -> list[Json]:
    """The journal's events; of a run that was killed before the first, that it began.

    Raises:
        ResultsError: as :func:`~gpubench_plugin.results.journal.read`.
    """
    return journal.read(directory.journal) or [unwritten_beginning(directory)]


def unwritten_beginning(directory: RunDirectory) -> Json:
    """What the first event would have been, as far as the run's name tells."""
    return {
        "event": "run_started",
        "time": directory.began.isoformat().replace("+00:00", "Z"),
        "run_id": directory.run_id,
        "command": [],
        "params": {},
    }


def beginning_of(directory: RunDirectory, events: Sequence[Json]) -> Json:
    """The journal's first event.

    Raises:
        ResultsError: the run never started.
    """
    beginning = next((e for e in events if e["event"] == "run_started"), None)
    if beginning is None:
        raise ResultsError(f"{directory.journal} has no beginning: the run never started")
    return beginning


def status_of(events: Sequence[Json]) -> RunStatus:
    """How the run ended; the orderly end may have come to the journal, and no summary to the disk.

    A run without an end was killed, or is still being written.
    """
    status = events[-1].get("status") if has_ended(events) else None
    known: tuple[RunStatus, ...] = ("complete", "failed")
    return next((one for one in known if one == status), "interrupted")


def has_ended(events: Sequence[Json]) -> bool:
    """Whether the last event is the run's orderly end."""
    return bool(events) and events[-1].get("event") == "run_finished"


def measurements_of(
    configurations: Mapping[str, Json], params: Mapping[str, Json], events: Sequence[Json]
) -> dict[str, Measurement]:
    """Every benchmark's latest measurement by node id; ``not_measured`` where it has none."""
    latest = {event["id"]: event for event in events if event["event"] == "benchmark"}
    return {
        i: recorded(latest[i]) if i in latest else _never_recorded(i, params.get(i, {}), settings)
        for i, settings in configurations.items()
    }


def recorded(event: Json) -> Measurement:
    """The measurement in a journal's line, every value of it of the type it should be.

    Raises:
        BrokenFile: the line breaks the schema, and where.
    """
    from pydantic import ValidationError

    try:
        return _measurements().validate_python(journal.restored(event))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise BrokenFile(
            f"the record of {event.get('id')!r:.100} breaks the schema at {where}: {first['msg']}"
        ) from error


@cache
def _measurements() -> TypeAdapter[Measurement]:
    from pydantic import TypeAdapter

    return TypeAdapter(Measurement)


def _never_recorded(node_id: str, params: Json, configuration: Json) -> Measurement:
    return Measurement(
        id=node_id,
        name=node_id.rpartition("::")[2],
        params=params,
        world_size=configuration["distributed"]["world_size"],
        outcome="not_measured",
        reason="the run ended before it",
        configuration=configuration,
    )


def configurations_of(directory: RunDirectory) -> dict[str, Json]:
    """Every benchmark's resolved configuration by node id, in the order of the run.

    Raises:
        ResultsError: the file cannot be read, or is not as it was written.
    """
    from gpubench_plugin.config import resolved_file

    path = directory.config_resolved
    try:
        return resolved_file.read(path)
    except FileNotFoundError as error:
        raise ResultsError(f"{path} cannot be read: {error.strerror}") from error


def environment_of(directory: RunDirectory) -> Json:
    """The facts of the machine and the software.

    Raises:
        ResultsError: the file cannot be read, or holds no mapping.
    """
    path = directory.system
    try:
        facts = json_files.load(path, limit=json_files.LIMIT_OF_FACTS_BYTES)
    except BrokenFile:
        raise
    except UsageProblem as error:
        raise ResultsError(str(error)) from error
    if not isinstance(facts, dict):
        raise BrokenFile(f"{path} is not as it was written: no mapping")
    return facts


State = Literal["complete", "failed", "interrupted", "running", "broken"]
"""``running``: a process is writing it; ``broken``: its files cannot be read."""


@dataclass(frozen=True, kw_only=True)
class Overview:
    """One run. `started` is UTC in ISO 8601, or empty; `outcomes` counts benchmarks.

    `path` is None for a run that only the registry knows. `problem` says what is broken.
    """

    run_id: str
    experiment: str
    path: Path | None
    state: State
    problem: str = ""
    started: str = ""
    command: tuple[str, ...] = ()
    commit: str | None = None
    branch: str | None = None
    dirty: bool | None = None
    outcomes: Mapping[str, int] = field(default_factory=dict)
    regressed: bool = False
    tags: tuple[str, ...] = ()

    @property
    def benchmarks(self) -> int:
        """How many were selected."""
        return sum(self.outcomes.values())

    @property
    def measured(self) -> int:
        """How many have numbers."""
        return self.outcomes.get("measured", 0)


def overview(directory: RunDirectory) -> Overview:
    """What the run in `directory` is at a glance, whatever has become of it; nothing is raised.

    It may be in progress, killed, or broken. Its files are looked at without validating them whole:
    thousands of runs are listed, and whatever is wrong with one of them is said of that one.
    """
    facts: dict[str, Any] = {
        "run_id": directory.run_id,
        "experiment": directory.experiment,
        "path": directory.path,
    }
    try:
        facts["tags"] = tags_of(directory)
        facts["regressed"] = _regressed(directory)
        read = _from_summary if directory.summary.exists() else _from_journal
        return Overview(**facts, **read(directory))
    except (GpubenchError, *json_files.MALFORMED) as error:
        problem = (
            str(error) if isinstance(error, GpubenchError) else f"not as written: {error!r:.200}"
        )
        facts["state"] = "running" if is_being_written(directory) else "broken"
        return Overview(**facts, problem=problem)


def is_being_written(directory: RunDirectory) -> bool:
    """Whether a living process holds the run's journal."""
    try:
        with KernelLock(directory.journal, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK) as journal:
            journal.take(shared=True)  # so that two who look do not see each other
    except BlockingIOError:
        return True
    except OSError:
        return False  # a file system without locks tells nobody
    return False


def _from_summary(directory: RunDirectory) -> dict[str, Any]:
    document = json_files.load(directory.summary)
    state = document["status"]
    if state not in {"complete", "failed", "interrupted"}:
        raise ValueError(f"status {state!r}")
    return {
        "state": state,
        "started": str(document["started"]),
        "command": tuple(map(str, document["command"])),
        "outcomes": dict(Counter(str(b["outcome"]) for b in document["benchmarks"])),
        **_git(document["environment"]),
    }


def _from_journal(directory: RunDirectory) -> dict[str, Any]:
    events = events_of(directory)
    running = is_being_written(directory)
    beginning = next((event for event in events if event.get("event") == "run_started"), None)
    if beginning is None:
        raise BrokenFile(f"{directory.journal} has no beginning: the run never started")
    recorded = {e["id"]: str(e["outcome"]) for e in events if e.get("event") == "benchmark"}
    selected = dict.fromkeys(beginning.get("params") or (), "not_measured")
    return {
        "state": "running" if running else "interrupted",
        "started": str(beginning["time"]),
        "command": tuple(map(str, beginning["command"])),
        "outcomes": dict(Counter({**selected, **recorded}.values())),
        **_git(json_files.load(directory.system, limit=json_files.LIMIT_OF_FACTS_BYTES)),
    }


def _git(environment: Mapping[str, Any]) -> dict[str, Any]:
    git = environment.get("git")
    git = git if isinstance(git, Mapping) else {}
    kinds = {"commit": str, "branch": str, "dirty": bool}
    return {key: git[key] for key, kind in kinds.items() if isinstance(git.get(key), kind)}


def _regressed(directory: RunDirectory) -> bool:
    if not directory.verdicts.exists():
        return False
    document = json_files.load(directory.verdicts, limit=json_files.LIMIT_OF_FACTS_BYTES)
    base = document.get("base_label", "")
    return any(
        is_regression(row["verdict"], row.get("method"), base=base)
        for row in document["benchmarks"]
    )


@dataclass(frozen=True, kw_only=True)
class EarlierRun:
    """A run as its files tell, its journal open for more and closed to every other process.

    `begun`: its first line was written; else it was killed before. `started` and `resumed` are UTC
    in ISO 8601. `configurations` and `measurements` hold every benchmark of the run by node id, in
    its order. A measurement is the latest in the journal, samples included; a benchmark that was
    never recorded is ``not_measured``. `code` is what :func:`.code.digests` found and what its
    benchmarks loaded; None of a run of a version that recorded none.
    """

    directory: RunDirectory
    journal: Journal
    begun: bool
    started: str
    resumed: tuple[str, ...]
    command: tuple[str, ...]
    environment: Json
    configurations: Mapping[str, Json]
    code: Mapping[str, str] | None
    measurements: Mapping[str, Measurement]

    @classmethod
    def open(cls, directory: RunDirectory) -> EarlierRun:
        """The run in `directory`; until something is appended to its journal, nothing changes.

        Raises:
            ResultsError: a file of it cannot be read, or another process is writing it.
        """
        lines = Journal(directory.journal)
        try:
            return cls._read(directory, lines)
        except json_files.MALFORMED as error:
            lines.close()
            raise BrokenFile(f"{directory} is not as it was written: {error!r:.200}") from error
        except BaseException:
            lines.close()
            raise

    @classmethod
    def _read(cls, directory: RunDirectory, lines: Journal) -> EarlierRun:
        written = journal.read(directory.journal)
        events = written or [unwritten_beginning(directory)]
        beginning = beginning_of(directory, events)
        configurations = configurations_of(directory)
        return cls(
            directory=directory,
            journal=lines,
            begun=bool(written),
            started=beginning["time"],
            resumed=tuple(e["time"] for e in events if e["event"] == "run_resumed"),
            command=tuple(map(str, beginning["command"])),
            environment=environment_of(directory),
            configurations=configurations,
            code=_code(beginning, events),
            measurements=measurements_of(configurations, beginning.get("params", {}), events),
        )

    def measured(self, ids: Iterable[str], *, launches: int) -> frozenset[str]:
        """Those of the benchmarks `ids` that were measured, in that many launches or more."""
        return frozenset(
            i
            for i in ids
            if self.measurements[i].outcome == "measured"
            and self.measurements[i].launches >= launches
        )


def _code(beginning: Json, events: Sequence[Json]) -> dict[str, str] | None:
    if beginning.get("code") is None:
        return None
    loaded = (event["files"] for event in events if event["event"] == "code")
    return code.united([beginning["code"], *loaded])
