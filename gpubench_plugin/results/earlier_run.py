"""A run that has ended, in order or not, opened to go on: what it was and what it has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpubench_plugin.environment import code, json_files
from gpubench_plugin.errors import BrokenFile
from gpubench_plugin.results import journal
from gpubench_plugin.results.journal import Journal
from gpubench_plugin.results.recorded import (
    beginning_of,
    configurations_of,
    environment_of,
    measurements_of,
    unwritten_beginning,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpubench_plugin.records import Json, Measurement
    from gpubench_plugin.results.run_directory import RunDirectory


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
