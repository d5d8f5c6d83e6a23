"""Session recording on rank zero: opens the run, records benchmarks, reports.

The stages of this side, in order: run directory → journal → (benchmarks run) → summary → terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, ParamSpec

import pytest

from gpubench_plugin.compare.scaling import Families
from gpubench_plugin.config.case import Case, device_models, devices_of
from gpubench_plugin.config.fixture_choice import overruled
from gpubench_plugin.core.errors import ResultsError, error_text
from gpubench_plugin.core.quality_flags import CONTENDED
from gpubench_plugin.core.records import Json, Measurement, Run, RunStatus
from gpubench_plugin.core.verdicts import Comparison
from gpubench_plugin.environment.fingerprints import machine_facts
from gpubench_plugin.launchers.context import context_of, update_context
from gpubench_plugin.reports import terminal
from gpubench_plugin.reports.markup import Line
from gpubench_plugin.reports.text import encodable, printable
from gpubench_plugin.results import pytest_benchmark, report_payload
from gpubench_plugin.results.registry.connection import store_run
from gpubench_plugin.session.live_status import LiveStatus
from gpubench_plugin.session.run import open_run
from gpubench_plugin.system.signals import signals_deferred, signals_ignored

_P = ParamSpec("_P")

_STATUS: Final[dict[int, RunStatus]] = {
    pytest.ExitCode.OK: "complete",
    pytest.ExitCode.NO_TESTS_COLLECTED: "complete",
    pytest.ExitCode.INTERRUPTED: "interrupted",
}


def status_of(exitstatus: int, deselected: Iterable[Measurement]) -> RunStatus:
    """Final status of a run; `deselected` are benchmarks deselected on resume."""
    status = _STATUS.get(exitstatus, "failed")
    outcomes = {measurement.outcome for measurement in deselected}
    if status == "complete" and not outcomes <= {"measured", "skipped", "unsupported"}:
        return "interrupted" if "not_measured" in outcomes else "failed"
    return status


class SessionRecorder:
    """Records the selected benchmarks of one session; `tests` are their cases by pytest's node id.

    A gate sets `close_gate`, which records the verdicts before the run is closed and tells whether
    the session must fail, and `failed_verdicts`, the ids of tests that failed by their verdict
    alone: these do not make the run a failed one.
    """

    def __init__(self, config: pytest.Config, tests: Mapping[str, Case]):
        self.tests, cases = tests, tests.values()
        self.close_gate: Callable[[], bool] = lambda: False
        self.failed_verdicts: Collection[str] = ()
        self._config = config
        self._settings = context_of(config).settings
        self.cases = {case.id: case for case in cases}
        self._own_cases = {case.id: case for case in cases if not case.adopted}
        self._payloads: dict[str, list[Json]] = {}
        self._measurements: dict[str, Measurement] = {}
        self._families: Families | None = None
        self._passed_tests: set[str] = set()
        self.missing_packages: dict[str, Mapping[str, str]] = {}
        """What a benchmark that is unsupported for it lacks, by node id."""
        self._write_error: ResultsError | None = None
        self._index_warning: str | None = None
        self._output_closed = False
        self._is_finished = False
        self._spent_s = 0.0  # of the last test, in the phases reported so far
        self._status = LiveStatus(config, {case.id: case.name for case in cases})

    def start(self) -> None:
        """Open the run before measuring.

        Raises:
            UsageProblem: the results, or ``--benchmark-json``, could not be written.
        """
        self._run = open_run(self._config, self._settings, self.cases)
        self._directory = self._run.recorder.directory
        self._machine = machine_facts(self._run.recorder.environment)
        self._status.skip(self._run.carried_over)
        self._unselected = self._run.earlier_measurements.keys() - self.cases.keys()
        earlier = self._run.earlier_measurements
        sizes = {case.world_size for case in self.cases.values()}
        if len(sizes | {measurement.world_size for measurement in earlier.values()}) > 1:
            self._families = Families()
        for node_id in self._unselected | self._run.carried_over:
            self._measurements |= self._scaled(earlier[node_id])
        update_context(
            self._config,
            run=self._directory,
            resumed=self._run.carried_over,
            journal=self._log,
            tell=self._status.tell,
        )

    @property
    def path(self) -> Path:
        """Path of the run directory that is written."""
        return self._directory.path

    @property
    def measurements(self) -> dict[str, Measurement]:
        """Measurements so far by node id, in run order, without samples."""
        order = self._run.earlier_measurements or self.cases
        return {i: self._measurements[i] for i in order if i in self._measurements}

    @property
    def has_failed(self) -> bool:
        """Whether the gate fails the session, or its results could not be written."""
        return self._write_error is not None or self.close_gate()

    def run_of(self, measurements: Iterable[Measurement]) -> Run:
        """`measurements` as a run for comparisons."""
        from gpubench_plugin.results.reader import run_of

        recorder, run_id = self._run.recorder, self._directory.run_id
        started = recorder.started
        return run_of(run_id, measurements, recorder.environment, started=started, run_id=run_id)

    def keep_verdicts(self, comparison: Comparison) -> None:
        """Write the verdicts to journal and run directory; a failure ends the session."""
        self._write(self._run.recorder.keep_verdicts, comparison)

    def pytest_report_collectionfinish(self) -> list[str]:
        """Header: benchmarks, devices and run directory."""
        cases = list(self._own_cases.values())
        adopted_count = len(self.cases) - len(cases)
        lines = [f"gpubench: adopted from pytest-benchmark: {adopted_count}"] * bool(adopted_count)
        lines += overruled(self._config) if cases else ()
        lines += terminal.header_lines(
            device=devices_of(cases, self._settings.devices),
            precision=tuple(dict.fromkeys(c.precision for c in cases if c.uses_precision)),
            world_sizes=tuple(dict.fromkeys(case.world_size for case in cases)),
            preset=", ".join(dict.fromkeys(c.configuration.experiment.preset for c in cases)),
            run_directory=self._display_directory(),
            width=self._config.get_terminal_writer().fullwidth,
        )
        if self._settings.resume:
            measured = self._run.carried_over
            remaining = self.cases.keys() - measured
            lines.append(f"resumed: {len(measured)} already measured, {len(remaining)} remaining")
        return lines

    def show(self, text: str) -> None:
        """Show `text` on the status line until the next event."""
        self._status.show(text)

    def _log(self, benchmark: str, event: Json) -> None:
        """Journal an `event` of a running benchmark; a failure ends the session after it."""
        if self._is_finished:
            return
        self._write(self._run.recorder.event, benchmark, event)
        self._status.add(benchmark, event)  # then, since a terminal may stop what writes to it

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Generator[None]:
        """Record a benchmark at its last report."""
        self._status.clear()
        case = self.tests.get(report.nodeid)
        if case is None or report_payload.is_of_subtest(report):
            report_payload.drop(report)
            return (yield)
        if report.when == "setup":  # drops the reports of an earlier try (pytest-rerunfailures)
            self._payloads[case.id], self._spent_s = [], 0.0
        self._spent_s += report.duration
        self._payloads.setdefault(case.id, []).append(report_payload.with_outcome(report))
        if report.when == "teardown":
            self._record(case)
        try:
            return (yield)
        finally:
            report_payload.drop(report)
            if report.when == "setup" and report.passed:
                self._status.restore()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Record a benchmark whose reports, made by another plugin, lack a teardown.

        The session ends once results cannot be written any more.
        """
        case = self.tests.get(nodeid)
        payloads = self._payloads.get(case.id, []) if case else []
        if case and (_has_outcome(payloads) or (payloads and case.id not in self._measurements)):
            self._record(case)
        if self._write_error is not None:
            session: Any = self._config.pluginmanager.get_plugin("session")
            session.shouldfail = f"cannot write results: {self._write_error}"

    def pytest_enter_pdb(self) -> None:
        """Leave the terminal to the debugger."""
        self._status.clear()

    def _record(self, case: Case) -> None:
        self._status.end(case.id)
        payloads = self._payloads[case.id]
        measurement = report_payload.measurement_of(case, payloads)
        for payload in payloads:
            if package := payload.get("missing_package"):
                self.missing_packages[case.id] = package
        own = {k: v for k, v in measurement.machine.items() if self._machine.get(k) != v}
        if measurement.shard:  # a node may lack what is here
            own |= dict.fromkeys(self._machine.keys() - measurement.machine.keys())
        measurement = replace(measurement, machine=own)
        if measurement.outcome == "not_measured" and not case.measures:
            self._passed_tests.add(case.id)
        if CONTENDED in measurement.flags:
            self._status.tell_contention(case.id, self._spent_s, case.configuration.measure)
        family = self._scaled(measurement.without_samples())
        self._measurements |= family
        measurement = replace(measurement, metrics=family[measurement.id].metrics)
        for payload in payloads:
            for event in payload.get("events", ()):  # how the ranks ended
                self._write(self._run.recorder.event, measurement.id, event)
        self._write(self._run.recorder.record, measurement)
        del self._payloads[case.id]  # what interrupts this leaves them to `_complete`

    def _scaled(self, measurement: Measurement) -> Mapping[str, Measurement]:
        """By id: `measurement`, and those on other numbers of ranks whose scaling it changes."""
        if self._families is None:
            return {measurement.id: measurement}
        return self._families.add(measurement)

    def _write(self, write: Callable[_P, object], *args: _P.args, **kwargs: _P.kwargs) -> None:
        """Call `write`, unless results could not be written before: the error ends the session."""
        if self._write_error is None:
            try:
                write(*args, **kwargs)
            except ResultsError as error:
                self._write_error = error

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Avoid exit code 5 for a resumed run with nothing left to do."""
        session.testscollected = session.testscollected or len(self._run.carried_over)

    def pytest_benchmark_update_json(self, output_json: Json) -> None:
        """Add metrics and run id to pytest-benchmark's JSON output.

        Adopted tests stay as they are. The devices are not part of its ``machine_info``, which
        pytest-benchmark compares before a session is known to have benchmarks of ours.
        """
        own_ids = self._measurements.keys() - (self.cases.keys() - self._own_cases.keys())
        if not own_ids:
            return
        pytest_benchmark.add_metrics(output_json, {i: self._measurements[i] for i in own_ids})
        recorder = self._run.recorder
        output_json["gpubench"] = {
            "schema_version": pytest_benchmark.SECTION.newest,
            "run_id": self.path.name,
            "started": recorder.started,
            "devices": device_models(self._own_cases.values()),
            "environment": recorder.environment,
        }

    @pytest.hookimpl(tryfirst=True)
    def pytest_internalerror(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Detect a closed stdout (``| head``), which raises an internal error."""
        self._output_closed = excinfo.errisinstance(BrokenPipeError)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(
        self, session: pytest.Session, exitstatus: int
    ) -> Generator[None, object, object]:
        """Write all results before other plugins' hooks, and survive errors in those.

        pytest-benchmark saves its files here; an error in that would cost the whole report.
        """
        # A second Ctrl-C during an interrupted session asks for nothing new.
        self._status.clear()
        with signals_ignored() if exitstatus == pytest.ExitCode.INTERRUPTED else signals_deferred():
            self._finish(session, exitstatus)
        if self._write_error is None:
            self._index_warning = store_run(
                self._settings.registry, self.path.parent.parent, self._directory
            )
        try:
            return (yield)
        except pytest.exit.Exception:  # requested, for example by Ctrl-C: no error
            raise
        except Exception as error:
            session.exitstatus = exitstatus or pytest.ExitCode.TESTS_FAILED
            reporter = self._config.pluginmanager.get_plugin("terminalreporter")
            if reporter is not None:
                self._config.hook.pytest_terminal_summary(
                    terminalreporter=reporter, exitstatus=session.exitstatus, config=self._config
                )
                details = f"{type(error).__name__}: {error_text(error)}"
                reporter.write_line(f"ERROR: error at the end of the session: {details}", red=True)
            return None

    def _finish(self, session: pytest.Session, exitstatus: int) -> None:
        """Write the summary, including benchmarks that never ran, which fail the run."""
        self._is_finished = True  # a thread that hangs in a benchmark may go on
        if exitstatus == pytest.ExitCode.OK and self.cases.keys() - self._measurements.keys():
            session.exitstatus = exitstatus = pytest.ExitCode.TESTS_FAILED
        status = self._run_status(session, exitstatus)
        ended = session.shouldfail or session.shouldstop
        reason = str(ended or "the session ended before this benchmark")
        if status == "interrupted":
            reason = "stdout was closed" if self._output_closed else "interrupted"
        self._complete(reason)
        if self.close_gate():
            session.exitstatus = exitstatus = exitstatus or pytest.ExitCode.TESTS_FAILED
        self._status.clear()
        if self._write_error is None:
            measurements = list(self.measurements.values())
            self._write(self._run.recorder.finish, status, measurements, self._benchmark_json())
        if self._write_error is not None:
            self._run.recorder.close()
            session.exitstatus = exitstatus or pytest.ExitCode.TESTS_FAILED

    def _run_status(self, session: pytest.Session, exitstatus: int) -> RunStatus:
        """Status of the run, which tests that failed by their verdict alone do not fail."""
        only_verdicts = 0 < len(self.failed_verdicts) == session.testsfailed
        if self._output_closed:
            exitstatus = pytest.ExitCode.INTERRUPTED
        elif only_verdicts and exitstatus == pytest.ExitCode.TESTS_FAILED:
            exitstatus = pytest.ExitCode.OK
        return status_of(exitstatus, [self._measurements[i] for i in self._unselected])

    def _complete(self, reason: str) -> None:
        """Add the benchmarks that the session has not recorded, unmeasured for this `reason`."""
        for case in self.cases.values():
            if _has_outcome(self._payloads.get(case.id, ())):
                self._record(case)  # interrupted between its outcome and its teardown
            elif case.id not in self._measurements:
                self._measurements[case.id] = self._run.earlier_measurements.get(
                    case.id, case.unmeasured("not_measured", reason)
                )

    @pytest.hookimpl(tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the result table before pytest-benchmark's."""
        measurements = [
            replace(m, machine={**self._machine, **m.machine})
            for i, m in self.measurements.items()
            if i not in self._passed_tests
        ]
        pytest_benchmark.hide_table(self._config, self._own_cases.keys() | self._unselected)
        if not (measurements or self._write_error or self._index_warning):
            return  # tests on ranks passed, and the header has named the folder
        terminalreporter.section("gpubench", sep="=")
        if measurements:
            lines = partial(terminal.closing_lines, measurements, options=self._settings.table)
            write_lines(terminalreporter, lines)
        if self._write_error is None:
            terminalreporter.write(f"recorded in {self._display_directory()}\n")
        else:
            kept = f"; what was recorded before is in {self._display_directory()}"
            journal = self._directory.journal
            is_kept = journal.is_file() and journal.stat().st_size > 0
            text = f"{self._write_error}{kept * is_kept}"
            terminalreporter.write(f"cannot write results: {text}\n", red=True)
        if self._index_warning is not None:
            terminalreporter.write(f"{printable(self._index_warning)}\n", yellow=True)

    def _benchmark_json(self) -> Json | None:
        results_by_id = context_of(self._config).fixture_metadata
        results = {i: results_by_id[i] for i in self.measurements if i in results_by_id}
        if not results:
            return None
        return pytest_benchmark.benchmark_json(self._config, results, self._measurements)

    def _display_directory(self) -> str:
        cwd = self._config.invocation_params.dir
        return str(self.path.relative_to(cwd) if self.path.is_relative_to(cwd) else self.path)


def _has_outcome(payloads: Sequence[Json]) -> bool:
    """Whether the payloads of a benchmark's phases include its outcome."""
    return any("outcome" in payload or "measurement" in payload for payload in payloads)


def write_lines(reporter: pytest.TerminalReporter, lines: Callable[[int], Iterable[Line]]) -> None:
    """Print the `lines` made for the terminal's width."""
    for line in lines(reporter.config.get_terminal_writer().fullwidth):
        for text, markup in line:
            reporter.write(encodable(text, sys.stdout), **markup)
        reporter.write("\n")
