"""What a shard writes, read while it runs: its tests' reports, records and events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpubench_plugin.core.errors import GpubenchError
from gpubench_plugin.core.records import Json, Measurement
from gpubench_plugin.engines.base import OUTPUT
from gpubench_plugin.environment.fingerprints import machine_facts
from gpubench_plugin.launchers import report_transport
from gpubench_plugin.results import journal, report_payload
from gpubench_plugin.results.journal import JournalTail
from gpubench_plugin.results.reader import RunReader
from gpubench_plugin.results.run_directory import RunDirectory, runs_in
from gpubench_plugin.session.shards.shard import REPORTS, RESULTS
from gpubench_plugin.system import stored
from gpubench_plugin.system.child_process import last_lines

if TYPE_CHECKING:
    import pytest

_LINES: Final = 40
_KEPT: Final = ("traces", "checkpoints", "ranks")
"""Folders of a run that its journal and summary do not have."""


@dataclass(kw_only=True)
class ShardTest:
    """A test that a shard has finished, or one that ended with it, for the `failure`.

    It has begun at a `time`, by the clock of its node. `record` is None of a test that is no
    benchmark; of several tries it is that of the last.
    """

    nodeid: str
    time: str = ""
    node: str = ""
    reports: list[pytest.TestReport] = field(default_factory=list)
    warnings: list[Json] = field(default_factory=list)
    results: list[Json] = field(default_factory=list)
    record: Measurement | None = None
    failure: str = ""
    output: str = ""


class ShardFiles:
    """Files in the `folder` of a shard, of which every line is read once.

    `running` is the test that has begun and not finished, `end` what the session told at its end,
    None before; `starts` counts how often each test has begun. `on_event` gets the events of
    benchmarks, by their ids.
    """

    def __init__(self, config: pytest.Config, folder: Path, on_event: Callable[[str, Json], None]):
        self.folder = folder
        self._on_event = on_event
        self.running: ShardTest | None = None
        self.end: Json | None = None
        self.starts: Counter[str] = Counter()
        self._config = config
        self._reports = JournalTail(folder / REPORTS)
        self._runs: dict[RunDirectory, tuple[JournalTail, Json]] = {}
        self._records: dict[str, list[tuple[str, Measurement]]] = {}
        self._finished: list[ShardTest] = []

    def read(self, ids: Mapping[str, str], *, is_last: bool = False) -> Iterator[ShardTest]:
        """Tests that have finished, with their records, which `ids` names by node ids.

        A record may arrive after the reports; if this `is_last`, it never does, and its test has
        not finished.

        Raises:
            GpubenchError: a file is broken.
        """
        if (self.folder / REPORTS).exists():
            for line in self._reports:
                self._take(line)
        for run in runs_in(self.folder / RESULTS):
            if run not in self._runs and run.system.exists():
                facts = machine_facts(RunReader(run).environment)
                self._runs[run] = JournalTail(run.journal), facts
        for tail, facts in self._runs.values():
            for line in tail:
                self._take_event(line, facts)
        waiting, self._finished = self._finished, []
        for test in waiting:
            written = self._records.get(ids.get(test.nodeid, ""), ())
            records = [record for time, record in written if time >= test.time]
            if test.nodeid not in ids or len(records) >= len(_ends(test.reports)):
                test.record = records[-1] if records else None
                yield test
            elif not is_last:
                self._finished.append(test)
            elif self.running is None:
                self.running = ShardTest(nodeid=test.nodeid, time=test.time)

    def _take(self, line: Json) -> None:
        match line["event"]:
            case "test_started":
                self.running = ShardTest(nodeid=line["nodeid"], time=line["time"])
                self.end = None
                self.starts[line["nodeid"]] += 1
            case "test_reported" if self.running is not None:
                report = report_transport.report_from_json(self._config, line["report"])
                self.running.reports.append(report)
            case "test_finished" if self.running is not None:
                self.running.warnings, self.running.results = line["warnings"], line["results"]
                self._finished.append(self.running)
                self.running = None
            case "shard_ended":
                self.end = line
                if self.running and _ends(self.running.reports):
                    self._finished.append(self.running)  # a forced exit, of one that hangs
                    self.running = None

    def _take_event(self, line: Json, facts: Json) -> None:
        if line["event"] == "benchmark":
            record = stored.restore(Measurement, journal.restore_non_finite(line), str(self.folder))
            machine = {**facts, **record.machine}
            record = replace(record, machine=machine, shard=self.folder.name)
            self._records.setdefault(record.id, []).append((line["time"], record))
        elif benchmark := (line.get("benchmark")):
            self._on_event(benchmark, {k: v for k, v in line.items() if k != "benchmark"})

    def crashed(self, test: ShardTest, benchmarks: Mapping[str, str], reason: str) -> ShardTest:
        """The running `test`, which has ended with its session for that `reason`."""
        test.failure, test.output = reason, self.last_output()
        with suppress(GpubenchError, LookupError):
            directory, (_, machine) = [*self._runs.items()][-1]
            run = RunReader(directory)
            test.record = replace(
                run.measurement(benchmarks[test.nodeid]),
                outcome="crashed",
                reason=reason,
                host=run.environment["hostname"],
                machine=machine,
                shard=self.folder.name,
            )
        return test

    def last_output(self) -> str:
        """The last lines that the session printed; empty if there are none."""
        output = self.folder / OUTPUT
        return "\n".join(last_lines(output, _LINES)) if output.exists() else ""

    def move_into(self, run: RunDirectory) -> None:
        """Move what only the shard's run directories have into that of the front."""
        for own in self._runs:
            for file in (f for name in _KEPT for f in (own.path / name).rglob("*")):
                target = run.path / file.relative_to(own.path)
                if file.is_file():
                    target.parent.mkdir(parents=True, exist_ok=True)
                    if target.suffix == ".jsonl" and target.exists():  # of a rank's samples
                        with target.open("ab") as rows:
                            rows.write(file.read_bytes())
                    else:
                        file.replace(target)


def with_record(test: ShardTest) -> list[pytest.TestReport]:
    """Reports of the `test` with its record, and without what the journal has already."""
    reports = [r for r in test.reports if not report_payload.is_of_subtest(r)]
    last_try = [0, *(end + 1 for end in _ends(reports)[:-1])][-1]
    for number, report in enumerate(reports):
        payload: dict[str, Any] = {**report_payload.read(report)}
        payload.pop("events", None)
        if test.record is not None and number >= last_try:
            payload[report_payload.RECORD] = test.record
            if report.when == "call" and test.record.outcome == "measured":
                payload["measurement"] = test.record
        setattr(report, report_payload.ATTRIBUTE, payload)
    return test.reports


def _ends(reports: Sequence[pytest.TestReport]) -> list[int]:
    """Places of the reports that end a try; each has a record."""
    return [n for n, report in enumerate(reports) if report.when == "teardown"]
