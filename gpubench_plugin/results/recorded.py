"""What a run has recorded, read from its directory whether it has ended or not."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from gpubench_plugin.errors import ResultsError
from gpubench_plugin.records import Measurement, RunRecord
from gpubench_plugin.results import journal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

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
            status=_status(events),
            started=beginning["time"],
            resumed=tuple(e["time"] for e in events if e["event"] == "run_resumed"),
            finished=events[-1]["time"],
            command=tuple(beginning["command"]),
            environment=environment_of(directory),
            benchmarks=tuple(measurements.values()),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ResultsError(f"{directory} is not as it was written: {error!r}") from error


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


def _status(events: Sequence[Json]) -> RunStatus:
    last = events[-1]
    status: RunStatus = last["status"] if last["event"] == "run_finished" else "interrupted"
    return status


def measurements_of(
    configurations: Mapping[str, Json], params: Mapping[str, Json], events: Sequence[Json]
) -> dict[str, Measurement]:
    """Every benchmark's latest measurement by node id; ``not_measured`` where it has none."""
    latest = {event["id"]: event for event in events if event["event"] == "benchmark"}
    return {
        i: _recorded(latest[i]) if i in latest else _never_recorded(i, params.get(i, {}), settings)
        for i, settings in configurations.items()
    }


def _recorded(event: Json) -> Measurement:
    known = {field.name for field in fields(Measurement)}
    data = journal.restored(event)
    return Measurement.from_json({name: data[name] for name in data if name in known})


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
        ResultsError: the file cannot be read, or holds no mapping.
        ValueError: it is no YAML.
    """
    import yaml

    from gpubench_plugin.configuration.dump import from_yaml

    # libyaml's parser, where it was built in, is many times faster.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    def parse(text: str) -> Any:
        try:
            return from_yaml(text, lambda part: yaml.load(part, Loader=loader))
        except yaml.YAMLError as error:
            raise ValueError(f"{directory.config_resolved.name}: {error}") from error

    return _mapping(directory.config_resolved, parse)


def environment_of(directory: RunDirectory) -> Json:
    """The facts of the machine and the software.

    Raises:
        ResultsError: the file cannot be read, or holds no mapping.
        ValueError: it is no JSON.
    """
    return _mapping(directory.system, json.loads)


def _mapping(path: Path, parse: Callable[[str], Any]) -> Json:
    try:
        facts = parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ResultsError(f"{path} cannot be read: {error.strerror}") from error
    if not isinstance(facts, dict):
        raise ResultsError(f"{path} is not as it was written: no mapping")
    return facts
