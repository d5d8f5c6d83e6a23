"""Recorder: writes a run incrementally, so that a crash loses nothing measured."""

from __future__ import annotations

import logging
import math
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpubench_plugin.core.records import Json, Measurement, RunRecord, RunStatus
from gpubench_plugin.core.verdicts import Comparison
from gpubench_plugin.environment.redaction import redacted_command
from gpubench_plugin.results.journal import Journal, line_of, utc_now
from gpubench_plugin.system import files, json_files, stored

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpubench_plugin.results.reader import RunToResume
    from gpubench_plugin.results.run_directory import RunDirectory


LOGGER = logging.getLogger("gpubench")

_SYNC_INTERVAL_S: Final = 1.0
"""Half a percent of a training that logs all the time."""
_UNSYNCED: Final = frozenset({"phase", "progress"})
"""Events beside the timed calls, which nobody misses after the end of the machine."""


@dataclass(eq=False)
class Recorder:
    """Files of one run: the journal from the start, the summary at the end."""

    directory: RunDirectory
    journal: Journal
    command: Sequence[str] = field(kw_only=True)
    environment: Mapping[str, Any] = field(kw_only=True)
    started: str = field(kw_only=True)
    resumed: Sequence[str] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        with files.refusals("write", self.directory.log):
            self._log = logging.FileHandler(
                self.directory.log, encoding="utf-8", errors="backslashreplace"
            )
        self._log.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        LOGGER.addHandler(self._log)
        LOGGER.setLevel(logging.INFO)
        LOGGER.propagate = False  # the run's log is not the tests' log

    @classmethod
    def start(
        cls,
        directory: RunDirectory,
        *,
        command: Sequence[str],
        environment: Mapping[str, Any],
        configurations: str,
        params: Mapping[str, Mapping[str, str]],
        code: Mapping[str, str],
    ) -> Recorder:
        """Start recording a new run in the empty `directory`; raises ResultsError.

        Args:
            directory: folder of the run.
            command: arguments of pytest; secrets are redacted.
            environment: facts of ``system.json``.
            configurations: text of ``config_resolved.yaml``.
            params: parameters of every selected benchmark, by node id.
            code: hashes of the measured files, see :func:`.code.digests`.
        """
        redacted, start_time = redacted_command(command), utc_now()
        json_files.write_text(directory.config_resolved, configurations)
        json_files.write_json(directory.system, environment)
        first = {"event": "run_started", "run_id": directory.run_id, "command": redacted}
        text = line_of({**first, "params": params, "code": code}, start_time)
        json_files.write_text(directory.journal, text)  # so that no run is without its first line
        return cls(
            directory,
            Journal(directory.journal),
            command=redacted,
            environment=environment,
            started=start_time,
        )

    @classmethod
    def resume(cls, run: RunToResume, *, command: Sequence[str], carried_over: int) -> Recorder:
        """Resume recording `run`, of which `carried_over` benchmarks count as measured.

        Removes the summary, which marks a finished run, and journals what only it has. Raises
        ResultsError.
        """
        resume_time = utc_now()
        recorder = cls(
            run.directory,
            run.journal,
            command=run.facts.command,
            environment=run.environment,
            started=run.facts.started,
            resumed=(*run.facts.resumed, resume_time),
        )
        resumption = {"event": "run_resumed", "time": resume_time, "run_id": run.directory.run_id}
        run.journal.append(
            {**resumption, "command": redacted_command(command), "kept": carried_over}
        )
        for measurement in run.only_in_summary:
            recorder.record(measurement)
        json_files.remove(run.directory.summary)
        return recorder

    def event(self, benchmark: str, event: Mapping[str, Any]) -> None:
        """Journal an event inside a benchmark, such as a training step; raises ResultsError.

        A line survives the process at once, and the machine at the latest with the benchmark's
        record, since a sync takes 250 times as long as a write: 2 ms (95%: 5 ms) and 8 µs (ext4 on
        a virtual disk). Between two timed blocks none is made.
        """
        interval_s = math.inf if event["event"] in _UNSYNCED else _SYNC_INTERVAL_S
        self.journal.append({**event, "benchmark": benchmark}, sync_interval_s=interval_s)

    def record(self, measurement: Measurement) -> None:
        """Journal a benchmark's record."""
        self.journal.append({"event": "benchmark", **stored.dump(measurement)})
        median = measurement.metrics.get("step_time_s")
        LOGGER.info(
            "%s: %s%s%s",
            json_files.jsonable(measurement.id),
            measurement.outcome,
            f", step_time_s {median.value:.6g}" if median else "",
            f" ({measurement.reason})" if measurement.reason else "",
        )

    def keep_verdicts(self, comparison: Comparison) -> None:
        """Journal and write the verdicts of a comparison with a baseline."""
        from gpubench_plugin.results.verdicts import document

        verdicts = document([comparison])
        self.journal.append({"event": "verdicts", "verdicts": verdicts})
        json_files.write_json(self.directory.verdicts, verdicts)

    def finish(
        self, status: RunStatus, benchmarks: Sequence[Measurement], benchmark_json: Json | None
    ) -> RunRecord:
        """Write the tables and finally the summary, which marks the run as ended."""
        from gpubench_plugin.results.csv_table import table_text
        from gpubench_plugin.results.summary import write_summary

        run = RunRecord(
            run_id=self.directory.run_id,
            experiment=self.directory.experiment,
            status=status,
            started=self.started,
            resumed=tuple(self.resumed),
            finished=utc_now(),
            command=tuple(self.command),
            environment=self.environment,
            benchmarks=tuple(benchmarks),
        )
        try:
            self.journal.append({"event": "run_finished", "status": status})
            json_files.write_text(self.directory.table, table_text(run.run_id, run.benchmarks))
            if benchmark_json is not None:
                json_files.write_json(self.directory.benchmark, benchmark_json)
            write_summary(self.directory.summary, run)
        finally:
            self.close()
        return run

    def close(self) -> None:
        """Close the journal and the log."""
        self.journal.close()
        LOGGER.removeHandler(self._log)
        LOGGER.propagate = True
        with suppress(OSError):  # of a full disk
            self._log.close()


def append(folder: Path, rank: int, benchmark: str, **fields: Any) -> None:
    """Append the `fields` of `benchmark` to the file of `rank` in `folder`; raises ResultsError.

    ``ranks/rank-<n>.jsonl`` has all samples of a rank, which sends only a bounded part to rank
    zero, in one line per benchmark, launch and resumption; and what happened in single calls.
    """
    path = folder / f"rank-{rank}.jsonl"
    line = json_files.text({"benchmark": benchmark, "time": utc_now(), "rank": rank, **fields})
    with files.refusals("write", path):
        folder.mkdir(parents=True, exist_ok=True)
        with path.open("ab+") as file:
            files.append_line(file.fileno(), f"{line}\n".encode("ascii"))
