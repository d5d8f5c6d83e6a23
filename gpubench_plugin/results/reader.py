"""Reader of a run directory: of a complete, killed or still running run.

It reads a record with all samples, a run for comparisons, an overview for lists, or a run to
resume.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal

from gpubench_plugin.config.rounds_file import FixedRounds
from gpubench_plugin.core.errors import BrokenFile, GpubenchError, ResultsError
from gpubench_plugin.core.quality_flags import UNFINISHED
from gpubench_plugin.core.records import (
    Benchmark,
    BenchmarkRecord,
    Json,
    LaunchSample,
    Measurement,
    Metric,
    Result,
    Run,
    RunFacts,
    RunRecord,
    Samples,
    shared,
)
from gpubench_plugin.environment.fingerprints import flat, informative_facts, machine_facts
from gpubench_plugin.results import journal, summary, verdicts
from gpubench_plugin.results.journal import Journal, JournalTail
from gpubench_plugin.results.progress import benchmark_events
from gpubench_plugin.results.run_directory import RunDirectory, tags_of
from gpubench_plugin.results.summary import SummaryBenchmark
from gpubench_plugin.system import json_files, stored
from gpubench_plugin.system.files import KernelLock


@contextmanager
def intact(path: object) -> Iterator[None]:
    """Convert errors of malformed contents to BrokenFile, which names `path`."""
    try:
        yield
    except json_files.MALFORMED as error:
        raise BrokenFile(f"{path} is malformed: {error!r:.200}") from error


RunState = Literal["complete", "failed", "interrupted", "running", "broken"]
"""``running``: a process is writing it; ``broken``: its files cannot be read."""


@dataclass(frozen=True, kw_only=True)
class RunOverview:
    """Overview of a run for lists; `started` is UTC in ISO 8601 or empty.

    `path` is None for a run that only the registry knows.
    """

    run_id: str
    experiment: str
    path: Path | None
    state: RunState
    error: str = ""
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
        """Number of selected benchmarks."""
        return sum(self.outcomes.values())

    @property
    def measured(self) -> int:
        """Number of measured benchmarks."""
        return self.outcomes.get("measured", 0)


def current_tags(directory: RunDirectory, registered: RunOverview | None) -> tuple[str, ...]:
    """Tags of the run: of its document if it is `registered`, else of its folder."""
    if registered is None or registered.error:
        return tags_of(directory)
    return registered.tags


_NOT_REACHED: Final = "the run ended before this benchmark"
_UNFINISHED: Final = (
    "the run has neither an end nor a record of this benchmark: it was killed, or is still running"
)


OUTLINE: Final = ("run_started", "run_resumed", "run_finished", "benchmark", "phase")
"""Events of a run as a whole, and of the phases and ends of benchmarks."""


class RunReader:
    """A stored run, read lazily from its directory.

    An unfinished run was killed or is still being written: it is ``interrupted``, `finished` the
    time of its last line, and a benchmark without a record ``not_measured``. Properties raise
    ResultsError for an unreadable file, BrokenFile for a malformed one.
    """

    def __init__(self, directory: RunDirectory):
        self.directory = directory

    @cached_property
    def outline(self) -> list[Json]:
        """The journal's lines on the run, on phases and ends of benchmarks, and its last line."""
        return list(self.lines(*OUTLINE))

    def lines(self, *events: str) -> Iterator[Json]:
        """The journal's lines of these `events` and a few others; without any, all lines."""
        return iter(JournalTail(self.directory.journal, events))

    @cached_property
    def start_event(self) -> Json:
        """The journal's first line, ``run_started``, which is read alone."""
        lines = JournalTail(self.directory.journal).read(chunk_bytes=1)
        if not lines or lines[0].get("event") != "run_started":
            raise BrokenFile(
                f"{self.directory.journal} begins with no run_started event: the run never started"
            )
        return lines[0]

    @property
    def is_finished(self) -> bool:
        """Whether the last event is the orderly end; the summary may still be missing."""
        return self.outline[-1].get("event") == "run_finished"

    @cached_property
    def facts(self) -> RunFacts:
        """What journal and ``system.json`` tell of the run, ``interrupted`` without an end."""
        start, end = self.start_event, self.outline[-1]
        fields = {
            "run_id": self.directory.run_id,
            "experiment": self.directory.experiment,
            "status": end["status"] if self.is_finished else "interrupted",
            "started": start["time"],
            "resumed": [e["time"] for e in self.outline if e.get("event") == "run_resumed"],
            "finished": end["time"],
            "command": start["command"],
            "environment": self.environment,
        }
        return stored.restore(RunFacts, fields, str(self.directory.journal))

    @cached_property
    def configurations(self) -> dict[str, Json]:
        """Resolved configurations by node id, in run order."""
        from gpubench_plugin.config.yaml_reader import read_resolved

        return read_resolved(self.directory.config_resolved)

    @cached_property
    def environment(self) -> Json:
        """Facts about hardware and software from ``system.json``."""
        from gpubench_plugin.environment.system_facts import FORMAT

        path = self.directory.system
        if not path.exists():
            raise ResultsError(f"{path}: no such file")
        return FORMAT.load(path)

    @cached_property
    def measurements(self) -> dict[str, Measurement]:
        """Latest measurement of every benchmark by node id, with samples, in run order."""
        latest = self._last_events()
        return {
            name: self._measurement(latest[name])
            if name in latest
            else _unmeasured(name, self.start_event["params"].get(name, {}), settings)
            for name, settings in self.configurations.items()
        }

    @cached_property
    def numbers(self) -> dict[str, Measurement]:
        """Measurement of every benchmark by node id, of a finished run without samples."""
        path = self.directory.summary
        if not path.exists():
            return self.measurements
        parsed = summary.parse(summary.FORMAT.load(path), str(path))
        return {benchmark.id: _measurement_of(benchmark) for benchmark in parsed.benchmarks}

    def measurement(self, node_id: str) -> Measurement:
        """Latest measurement of the benchmark, with samples if the journal has it."""
        event = self._last_events().get(node_id)
        return self.numbers[node_id] if event is None else self._measurement(event)

    @property
    def regressed(self) -> tuple[str, ...]:
        """Benchmarks whose verdicts exclude the run from the samples."""
        path = self.directory.verdicts
        return verdicts.read(path).regressed if path.exists() else ()

    def rounds(self) -> dict[str, FixedRounds]:
        """Number of rounds per benchmark, to measure a comparable run.

        The median launch counts, as for metrics: a minimum over more rounds would not be
        comparable. Benchmarks with unreadable samples are omitted.
        """
        rounds = {}
        for event in self.outline:
            if event.get("event") == "benchmark" and event.get("samples"):
                with suppress(BrokenFile, LookupError, TypeError, ValueError):
                    rounds[event["id"]] = _rounds_of(journal.restore_non_finite(event))
        return rounds

    def record(self, *, with_events: bool = False) -> RunRecord:
        """Complete record with all samples, from the journal; `with_events` of the benchmarks."""
        with intact(self.directory):
            return RunRecord(
                **vars(self.facts),
                benchmarks=tuple(self.measurements.values()),
                events=tuple(benchmark_events(self.lines())) if with_events else (),
            )

    def run(self, label: str = "") -> Run:
        """The run for comparisons: from its summary, else from its journal.

        In an unfinished run, benchmarks without a journal line get the flag
        :data:`~gpubench_plugin.core.quality_flags.UNFINISHED`.
        """
        path = self.directory.summary
        if not path.exists():
            return self.run_from_journal(label)
        with intact(self.directory):
            return run_of_summary(path, summary.FORMAT.load(path), label or self.directory.run_id)

    def run_from_journal(self, label: str = "") -> Run:
        """The run for comparisons, from the journal alone."""
        with intact(self.directory):
            label = label or self.directory.run_id
            return _stored_run(label, dict(self._results()), self.facts, self.directory.path)

    def overview(self, registered: RunOverview | None = None) -> RunOverview:
        """Overview of the run in any state, with its tags if it is `registered`; never raises.

        Of the summary only the version and what is used are validated, as lists have thousands of
        runs.
        """
        directory = self.directory
        known: dict[str, Any] = {
            "run_id": directory.run_id,
            "experiment": directory.experiment,
            "path": directory.path,
        }
        try:
            with intact(directory):
                tags, regressed = current_tags(directory, registered), bool(self.regressed)
                glance = self._glance()
                return RunOverview(
                    **known,
                    tags=tags,
                    regressed=regressed,
                    state=glance["status"],
                    started=str(glance["started"]),
                    command=tuple(map(str, glance["command"])),
                    outcomes=dict(Counter(str(b["outcome"]) for b in glance["benchmarks"])),
                    **_git(glance["environment"]),
                )
        except GpubenchError as error:
            if is_being_written(directory):  # it has only just begun
                return RunOverview(**known, state="running")
            return RunOverview(**known, state="broken", error=str(error))

    def _glance(self) -> Mapping[str, Any]:
        """Fields of the summary, as far as an overview needs them; without one, of the journal."""
        unmeasured = {name: {"outcome": "not_measured"} for name in self.start_event["params"]}
        if self.directory.summary.exists():
            document = summary.FORMAT.load(self.directory.summary)
            if document["status"] not in {"complete", "failed", "interrupted"}:
                raise ValueError(f"status {document['status']!r}")
            return document
        status = {"status": "running"} if is_being_written(self.directory) else {}
        benchmarks = {**unmeasured, **self._last_events()}.values()
        return {**vars(self.facts), **status, "benchmarks": benchmarks}

    def _last_events(self) -> dict[str, Json]:
        """Last event of each benchmark that has one."""
        return {event["id"]: event for event in self.outline if event.get("event") == "benchmark"}

    def _measurement(self, event: Json) -> Measurement:
        """Validate and parse the measurement in a journal line."""
        with intact(self.directory.journal):
            event = journal.restore_non_finite(event)
            label = f"{self.directory.journal}, the record of {event['id']!r:.100},"
            return stored.restore(Measurement, event, label)

    def _results(self) -> Iterator[tuple[str, Result]]:
        """Result of every selected benchmark by node id."""
        latest = self._last_events()
        is_finished = self.is_finished or self.directory.summary.exists()
        for name in dict.fromkeys((*self.start_event["params"], *latest)):
            if name in latest:
                yield name, _of_measurement(self._measurement(latest[name]))
                continue
            reason, flags = (_NOT_REACHED, ()) if is_finished else (_UNFINISHED, (UNFINISHED,))
            yield name, Result(id=name, outcome="not_measured", reason=reason, flags=flags)


class RunToResume(RunReader):
    """A run to resume, read completely, with its journal open and locked.

    Nothing changes until something is appended to the journal.

    Raises:
        ResultsError: a file cannot be read, or another process is writing the run.
    """

    def __init__(self, directory: RunDirectory):
        super().__init__(directory)
        self.journal = Journal(directory.journal)
        try:
            with intact(directory):
                _ = self.facts
                self.only_in_summary = tuple(self._only_in_summary())
                self.measurements.update({one.id: one for one in self.only_in_summary})
        except BaseException:
            self.journal.close()
            raise

    def _only_in_summary(self) -> Iterator[Measurement]:
        """What the summary has of benchmarks whose record the journal has lost, without samples."""
        path = self.directory.summary
        document = summary.FORMAT.load(path) if path.exists() else None
        for one in summary.parse(document, str(path)).benchmarks if document else ():
            journaled = self.measurements.get(one.id)
            if journaled and one.outcome == "measured" != journaled.outcome:
                yield _measurement_of(one)

    def measured(self, ids: Iterable[str], *, launches: int) -> frozenset[str]:
        """Benchmarks among `ids` measured in at least `launches` launches."""
        return frozenset(
            i
            for i in ids
            if self.measurements[i].outcome == "measured"
            and self.measurements[i].launches >= launches
        )


# After which a run whose file system has no locks counts as killed. Events come every few seconds,
# but none while a model is compiled or a checkpoint loaded.
_SILENT_S: Final = 900.0


def is_being_written(directory: RunDirectory) -> bool:
    """Whether a live process holds the run's journal.

    On a file system without locks, whether it is without an end and has grown lately.
    """
    try:
        with KernelLock(directory.journal, os.O_RDONLY | os.O_NONBLOCK) as journal:
            journal.acquire(shared=True)  # so that two readers do not exclude each other
    except BlockingIOError:
        return True
    except OSError:
        with suppress(OSError):
            silent_s = time.time() - directory.journal.stat().st_mtime
            return silent_s < _SILENT_S and not directory.summary.exists()
    return False


def run_of(
    label: str,
    measurements: Iterable[Measurement],
    environment: Mapping[str, Any],
    *,
    started: str = "",
    run_id: str = "",
) -> Run:
    """Convert a session's own measurements to a run."""
    results = {measurement.id: _of_measurement(measurement) for measurement in measurements}
    return _run(label, results, environment, started=started, run_id=run_id)


def run_of_summary(path: Path, document: object, label: str) -> Run:
    """Convert `document`, read from the summary at `path`, to a run; raises BrokenFile."""
    parsed = summary.parse(document, str(path))
    results = {benchmark.id: result_of_summary(benchmark) for benchmark in parsed.benchmarks}
    return _stored_run(label, results, parsed, path.parent)


def result_of_summary(benchmark: SummaryBenchmark) -> Result:
    """Result of a benchmark in a summary."""
    return _of_measurement(_measurement_of(benchmark))


def _measurement_of(benchmark: SummaryBenchmark) -> Measurement:
    """The measurement whose numbers, but not samples, a summary has."""
    metrics = {name: Metric(name=name, **vars(m)) for name, m in benchmark.metrics.items()}
    launches = [
        {n: replace(metrics[n], value=value) for n, value in launch.items() if n in metrics}
        for launch in benchmark.per_launch
    ]
    return Measurement(
        **shared(BenchmarkRecord, benchmark),
        metrics=metrics,
        per_launch=tuple(LaunchSample(samples=None, metrics=m, flags=()) for m in launches),
    )


def _of_measurement(measurement: Measurement) -> Result:
    """Result equal to the summary's of `measurement`, without non-finite numbers."""
    finite = measurement.finite()
    launches = [launch.metrics for launch in finite.per_launch] or [finite.metrics]
    values = ({name: metric.value for name, metric in metrics.items()} for metrics in launches)
    return Result(
        **shared(Benchmark, finite),
        metrics=finite.metrics,
        launches=tuple(values) if finite.metrics or finite.per_launch else (),
        configuration=flat(finite.configuration) if finite.configuration else {},
        work=None if finite.work is None else finite.work.known_amounts,
        places=finite.correctness.get("places", {}),
    )


def _stored_run(label: str, results: Mapping[str, Result], facts: RunFacts, path: Path) -> Run:
    known = {name: getattr(facts, name) for name in ("run_id", "started", "finished", "status")}
    return _run(label, results, facts.environment, path=path, **known)


def _run(
    label: str, results: Mapping[str, Result], environment: Mapping[str, Any], **fields: Any
) -> Run:
    return Run(
        label=label,
        machine=machine_facts(environment),
        environment=informative_facts(environment),
        results=results,
        **_git(environment),
        **fields,
    )


def _git(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Commit, branch and dirty state, where known."""
    git = environment.get("git") or {}
    return {key: git.get(key) for key in ("commit", "branch", "dirty")}


def _unmeasured(node_id: str, params: Json, configuration: Json) -> Measurement:
    return Measurement(
        id=node_id,
        name=node_id.rpartition("::")[2],
        params=params,
        world_size=configuration["distributed"]["world_size"],
        outcome="not_measured",
        reason=_NOT_REACHED,
        configuration=configuration,
    )


def _rounds_of(event: Mapping[str, Any]) -> FixedRounds:
    launches = event.get("per_launch") or [event]
    samples = (stored.restore(Samples, launch["samples"], "the journal") for launch in launches)
    return median_rounds(map(FixedRounds.of, samples))


def median_rounds(plans: Iterable[FixedRounds]) -> FixedRounds:
    """The median plan by number of rounds, the lower one of two."""
    sorted_plans = sorted(plans, key=lambda plan: plan.rounds)
    return sorted_plans[(len(sorted_plans) - 1) // 2]
