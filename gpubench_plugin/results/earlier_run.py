"""A run that has ended, in order or not, opened to go on: what it was and what it has."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from gpubench_plugin.errors import ResultsError
from gpubench_plugin.records import Measurement
from gpubench_plugin.results import journal
from gpubench_plugin.results.journal import Journal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from gpubench_plugin.records import Json
    from gpubench_plugin.results.run_directory import RunDirectory


@dataclass(frozen=True, kw_only=True)
class EarlierRun:
    """A run as its files tell, its journal open for more and closed to every other process.

    `started` and `resumed` are UTC in ISO 8601. `configurations` and `measurements` hold every
    benchmark of the run by node id, in its order. A measurement is the latest in the journal,
    samples included; a benchmark that was never recorded is ``not_measured``.
    """

    directory: RunDirectory
    journal: Journal
    started: str
    resumed: tuple[str, ...]
    command: tuple[str, ...]
    environment: Json
    configurations: Mapping[str, Json]
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
        except (KeyError, TypeError, ValueError) as error:
            lines.close()
            raise ResultsError(f"{directory} is not as it was written: {error!r}") from error
        except BaseException:
            lines.close()
            raise

    @classmethod
    def _read(cls, directory: RunDirectory, lines: Journal) -> EarlierRun:
        events = journal.read(directory.journal)
        beginning = next((e for e in events if e["event"] == "run_started"), None)
        if beginning is None:
            raise ResultsError(f"{directory.journal} has no beginning: the run never started")
        configurations = _configurations(directory)
        return cls(
            directory=directory,
            journal=lines,
            started=beginning["time"],
            resumed=tuple(e["time"] for e in events if e["event"] == "run_resumed"),
            command=tuple(beginning["command"]),
            environment=_mapping(directory.system, json.loads),
            configurations=configurations,
            measurements=_measurements(configurations, beginning.get("params", {}), events),
        )

    def measured(self, ids: Iterable[str], *, launches: int) -> frozenset[str]:
        """Those of the benchmarks `ids` that were measured, in that many launches or more."""
        return frozenset(
            i
            for i in ids
            if self.measurements[i].outcome == "measured"
            and self.measurements[i].launches >= launches
        )


def _measurements(
    configurations: Mapping[str, Json], params: Mapping[str, Json], events: Sequence[Json]
) -> dict[str, Measurement]:
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


def _configurations(directory: RunDirectory) -> dict[str, Json]:
    import yaml

    # libyaml's parser, where it was built in, is many times faster.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    def parse(text: str) -> Any:
        try:
            return yaml.load(text, Loader=loader)
        except yaml.YAMLError as error:
            raise ValueError(f"{directory.config_resolved.name}: {error}") from error

    return _mapping(directory.config_resolved, parse)


def _mapping(path: Path, parse: Callable[[str], Any]) -> Json:
    try:
        facts = parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ResultsError(f"{path} cannot be read: {error.strerror}") from error
    if not isinstance(facts, dict):
        raise ResultsError(f"{path} is not as it was written: no mapping")
    return facts
