"""The recorder: it writes a run down while it happens, so that no crash costs what was measured."""

from __future__ import annotations

import logging
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpubench_plugin.environment import files, json_files, redacted_command, stored
from gpubench_plugin.errors import ResultsError
from gpubench_plugin.records import Comparison, Json, Measurement, RunRecord, RunStatus, Samples
from gpubench_plugin.results.journal import Journal, utc_now

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from io import TextIOWrapper

    from gpubench_plugin.results.reader import EarlierRun
    from gpubench_plugin.results.run_directory import RunDirectory


LOGGER = logging.getLogger("gpubench")


class Recorder:
    """The files of one run: the journal from the start, the summary at the end."""

    def __init__(
        self,
        directory: RunDirectory,
        journal: Journal,
        *,
        command: Sequence[str],
        environment: Mapping[str, Any],
        started: str,
        resumed: Sequence[str] = (),
    ):
        self.directory = directory
        self._journal = journal
        self._command = tuple(command)
        self.environment = environment
        self.started = started
        self._resumed = tuple(resumed)
        self._log = _open_log(directory)

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
        """The recorder of a new run.

        Args:
            directory: its folder, empty.
            command: the arguments of pytest; secrets among them are not recorded.
            environment: the facts of ``system.json``.
            configurations: the text of ``config_resolved.yaml``.
            params: the parameters of every selected benchmark, by node id.
            code: the files that are measured, see :func:`.code.digests`.

        Raises:
            ResultsError: a file could not be written.
        """
        shown, now = redacted_command(command), utc_now()
        json_files.write_text(directory.config_resolved, configurations)
        json_files.write_json(directory.system, environment)
        recorder = cls(
            directory,
            Journal(directory.journal),
            command=shown,
            environment=environment,
            started=now,
        )
        recorder._begin("run_started", now, shown, params=params, code=code)
        return recorder

    @classmethod
    def resume(cls, run: EarlierRun, *, command: Sequence[str], kept: int) -> Recorder:
        """The recorder of an earlier `run` that goes on; `kept` of its benchmarks stay as they are.

        The run's summary is gone until there is a new one: it would say that the run has ended.

        Raises:
            ResultsError: a file could not be written.
        """
        now, shown = utc_now(), redacted_command(command)
        recorder = cls(
            run.directory,
            run.journal,
            command=run.command if run.begun else shown,
            environment=run.environment,
            started=run.started,
            resumed=(*run.resumed, now),
        )
        if not run.begun:
            params = {i: one.params for i, one in run.measurements.items()}
            recorder._begin("run_started", run.started, shown, params=params)
        recorder._begin("run_resumed", now, shown, kept=kept)
        json_files.remove(run.directory.summary)
        return recorder

    def _begin(self, event: str, now: str, command: Sequence[str], **more: object) -> None:
        head = {"event": event, "time": now, "run_id": self.directory.run_id, "command": command}
        try:
            self._journal.append({**head, **more})
        except BaseException:
            self.close()
            raise

    def event(self, benchmark: str, event: Mapping[str, Any]) -> None:
        """Journal what happened inside a benchmark, a training step for example.

        Raises:
            ResultsError: it could not be written; so for all methods.
        """
        self._journal.append({**event, "benchmark": benchmark})

    def record(self, measurement: Measurement) -> None:
        """Journal a benchmark's record."""
        self._journal.append({"event": "benchmark", **stored.dumped(measurement)})
        median = measurement.metrics.get("step_time_s")
        LOGGER.info(
            "%s: %s%s%s",
            json_files.plain(measurement.id),
            measurement.outcome,
            f", step_time_s {median.value:.6g}" if median else "",
            f" ({measurement.reason})" if measurement.reason else "",
        )

    def keep_verdicts(self, comparison: Comparison) -> None:
        """Journal what a comparison with a baseline found, and write it beside."""
        from gpubench_plugin.results.verdicts import document

        verdicts = document([comparison])
        self._journal.append({"event": "verdicts", "verdicts": verdicts})
        json_files.write_json(self.directory.verdicts, verdicts)

    def finish(
        self,
        status: RunStatus,
        benchmarks: Sequence[Measurement],
        benchmark_json: Json | None,
    ) -> RunRecord:
        """Write the tables, and last of all the summary; the run has ended."""
        from gpubench_plugin.results.summary import table_text, write_summary

        run = RunRecord(
            run_id=self.directory.run_id,
            experiment=self.directory.experiment,
            status=status,
            started=self.started,
            resumed=self._resumed,
            finished=utc_now(),
            command=self._command,
            environment=self.environment,
            benchmarks=tuple(benchmarks),
        )
        try:
            self._journal.append({"event": "run_finished", "status": status})
            json_files.write_text(self.directory.table, table_text(run.benchmarks))
            if benchmark_json is not None:
                json_files.write_json(self.directory.benchmark, benchmark_json)
            write_summary(self.directory.summary, run)
        finally:
            self.close()
        return run

    def close(self) -> None:
        """Close the journal and the log."""
        self._journal.close()
        LOGGER.removeHandler(self._log)
        LOGGER.propagate = True
        self._log.close()


class _LogFile(logging.FileHandler):
    """Appends to a file that is no link: a run's folder may come from anywhere."""

    def _open(self) -> TextIOWrapper:
        descriptor = files.open_to_write(Path(self.baseFilename), append=True)
        return os.fdopen(descriptor, "a", encoding=self.encoding)


def _open_log(directory: RunDirectory) -> logging.Handler:
    try:
        handler = _LogFile(directory.log, encoding="utf-8")
    except OSError as error:
        raise ResultsError(f"{directory.log} cannot be written: {error.strerror}") from error
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    LOGGER.propagate = False  # the run's log is not the tests' log
    return handler


def append(folder: Path, rank: int, benchmark: str, samples: Samples) -> None:
    """Append the samples of the `benchmark` with that node id to the file of `rank` in `folder`.

    ``ranks/rank-<n>.jsonl`` has all that one rank of several has timed, a line for each benchmark:
    what the ranks send to rank zero is bounded, this is not. Of several launches, or after a run
    was resumed, there are several lines; each has its time.

    Raises:
        ResultsError: they could not be written.
    """
    _append(folder, rank, benchmark, {"samples": asdict(samples)})


def append_events(folder: Path, rank: int, benchmark: str, events: Sequence[Json]) -> None:
    """Append the `events` of one call of the `benchmark` to the file of `rank` in `folder`.

    It is for benchmarks that keep what the rank did in one call.

    Raises:
        ResultsError: they could not be written.
    """
    _append(folder, rank, benchmark, {"events": list(events)})


def _append(folder: Path, rank: int, benchmark: str, more: Json) -> None:
    path = folder / f"rank-{rank}.jsonl"
    line = json_files.text({"benchmark": benchmark, "time": utc_now(), "rank": rank, **more})
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with os.fdopen(files.open_to_write(path, append=True), "a", encoding="ascii") as file:
            file.write(f"{line}\n")
    except OSError as error:
        raise json_files.not_written(path, error) from error
