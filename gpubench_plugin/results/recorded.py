"""What a run has recorded, read from its directory whether it has ended or not."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from gpubench_plugin.environment import json_files
from gpubench_plugin.errors import BrokenFile, ResultsError, UsageProblem
from gpubench_plugin.records import Measurement, RunRecord
from gpubench_plugin.results import journal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
