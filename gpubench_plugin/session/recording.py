"""Session recording on rank zero: opens the run, records benchmarks, reports.

The stages of this side, in order: run directory → journal → (benchmarks run) → summary → terminal.
"""

from __future__ import annotations

import json
import math
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from gpubench_plugin.compare import Families
from gpubench_plugin.config import device_models, devices_of
from gpubench_plugin.environment import counted
from gpubench_plugin.errors import ResultsError, error_text
from gpubench_plugin.launchers import (
    context_of,
    report_payload,
    signals_deferred,
    signals_ignored,
    update_context,
)
from gpubench_plugin.reports import glyphs_for, printable, scaling_lines, status_line, terminal
from gpubench_plugin.results import pytest_benchmark
from gpubench_plugin.session.run import open_run

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

    from gpubench_plugin.config import Case
    from gpubench_plugin.records import Comparison, Json, Measurement, Run, RunStatus


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


class Recording:
    """Records the selected benchmarks of one session.

    A gate sets `finishing`, which has the verdicts recorded before the run is closed and tells
    whether the session must not end well because of them, and `failed_verdicts`, which counts the
    tests that failed because of a verdict: they say nothing of how the run went.
    """

    finishing: Callable[[], bool] | None = None
    failed_verdicts: Callable[[], int] | None = None

    def __init__(self, config: pytest.Config, cases: Sequence[Case]):
        self._config = config
        self._settings = context_of(config).settings
        self._cases = {case.id: case for case in cases}
        self._own = {case.id: case for case in cases if not case.adopted}
        self._told: dict[str, list[Json]] = {}
        self._measurements: dict[str, Measurement] = {}
        self._configurations: dict[str, Mapping[str, Any]] = {}
        self._families = Families()
        self._problem: ResultsError | None = None
        self._unindexed: str | None = None
        self._output_closed = False
        self._status = status_line()

    def start(self) -> None:
        """Open the run before measuring.

        Raises:
            UsageProblem: the results, or ``--benchmark-json``, could not be written.
        """
        self._run = open_run(self._config, self._settings, self._cases)
        self._unselected = self._run.earlier_measurements.keys() - self._cases.keys()
        self._measurements = {
            i: self._run.earlier_measurements[i] for i in self._unselected | self._run.carried_over
        }
        for measurement in list(self._measurements.values()):
            self._measurements |= self._families.add(measurement)
        directory = self._run.recorder.directory
        update_context(
            self._config,
            run=directory,
            resumed=self._run.carried_over,
            progress=self._show_progress,
        )

    @property
    def path(self) -> Path:
        """The run directory."""
        return self._run.recorder.directory.path

    @property
    def measurements(self) -> dict[str, Measurement]:
        """Measurements so far by node id, in run order, without samples."""
        return {measurement.id: measurement for measurement in self._in_order()}

    def run(self) -> Run:
        """The measurements so far as a run for comparisons."""
        return self.run_of(self._in_order())

    def run_of(self, measurements: Iterable[Measurement]) -> Run:
        """`measurements` as a run for comparisons."""
        from gpubench_plugin.results import run_of

        recorder = self._run.recorder
        run_id = recorder.directory.run_id
        facts = recorder.environment
        return run_of(run_id, measurements, facts, started=recorder.start_time, run_id=run_id)

    def keep_verdicts(self, comparison: Comparison) -> None:
        """Write the verdicts to journal and run directory; a failure ends the session."""
        try:
            self._run.recorder.keep_verdicts(comparison)
        except ResultsError as problem:
            self._problem = problem

    def pytest_report_collectionfinish(self) -> list[str]:
        """Header: benchmarks, devices and run directory."""
        cases = list(self._own.values())
        adopted = len(self._cases) - len(cases)
        lines = [f"gpubench: adopted from pytest-benchmark: {adopted}"] if adopted else []
        lines += terminal.header_lines(
            device=devices_of(cases, self._settings.devices),
            precision=tuple(dict.fromkeys(c.precision for c in cases if c.uses_precision)),
            world_sizes=tuple(dict.fromkeys(case.world_size for case in cases)),
            preset=", ".join(dict.fromkeys(c.configuration.experiment.preset for c in cases)),
            run_directory=self._shown_directory(),
            width=_width(self._config),
        )
        if self._settings.resume:
            kept = self._run.carried_over
            to_go = len(self._cases.keys() - kept)
            lines.append(f"resumed: {len(kept)} already measured, {to_go} remaining")
            lines += self._run.notes
        return lines

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Show in the terminal that a benchmark is warming up."""
        if nodeid in self._own:
            self._status.show("checking and warming up")

    def show(self, text: str) -> None:
        """Show `text` on the status line until the next report."""
        self._status.show(text)

    def _show_progress(self, rounds: int, half_width: float) -> None:
        known = f", ±{half_width:.2%}" if half_width < math.inf else ""
        self._status.show(f"{counted(rounds, 'round')}{known}")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Generator[None]:
        """Record a benchmark at its last report."""
        self._status.clear()
        case = self._cases.get(report.nodeid)
        if case is None:
            return (yield)
        if report.when == "setup":  # of a rerun, too
            self._told[case.id] = []
        self._told.setdefault(case.id, []).append(report_payload.with_outcome(report))
        if report.when == "teardown":
            self._record(case)
        try:
            return (yield)
        finally:
            report_payload.drop(report)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Record a benchmark whose reports, made by another plugin, lack a teardown."""
        told = self._told.get(nodeid, [])
        if _has_outcome(told) or (told and nodeid not in self._measurements):
            self._record(self._cases[nodeid])

    def _record(self, case: Case) -> None:
        told = self._told.pop(case.id)
        measurement = report_payload.measurement_of(case, told)
        family = self._families.add(self._kept(measurement))
        self._measurements |= family
        if self._problem is not None:
            return
        measurement = replace(measurement, metrics=family[measurement.id].metrics)
        try:
            for part in told:
                for event in part.get("events", ()):
                    self._run.recorder.event(measurement.id, event)
            self._run.recorder.record(measurement)
        except ResultsError as problem:
            self._problem = problem

    def _kept(self, measurement: Measurement) -> Measurement:
        """Reduce for memory: share equal configurations, drop samples."""
        whole = json.dumps(measurement.configuration, default=repr)
        shared = self._configurations.setdefault(whole, measurement.configuration)
        return replace(measurement.without_samples(), configuration=shared)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        """Stop once results cannot be written any more."""
        handled = yield
        if self._problem is not None:
            item.session.shouldfail = f"cannot write results: {self._problem}"
        return handled

    def pytest_benchmark_update_json(self, output_json: Json) -> None:
        """Add metrics and run id to pytest-benchmark's JSON output.

        The devices are not part of its ``machine_info``: that is compared before it is known
        whether a session has benchmarks of ours.
        """
        ours = self._measurements.keys() - (self._cases.keys() - self._own.keys())
        if not ours:  # those that are adopted stay as they are
            return
        pytest_benchmark.add_metrics(output_json, {i: self._measurements[i] for i in ours})
        recorder = self._run.recorder
        output_json["gpubench"] = {
            "schema_version": pytest_benchmark.SECTION.newest,
            "run_id": recorder.directory.path.name,
            "started": recorder.start_time,
            "devices": device_models(self._own.values()),
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

        pytest-benchmark saves its files here, and an error of that would cost the whole report.
        """
        # Who has interrupted the session means the same by a second signal.
        with signals_ignored() if exitstatus == pytest.ExitCode.INTERRUPTED else signals_deferred():
            self._finish(session, exitstatus)
        self._unindexed = None if self._problem is not None else self._index()
        try:
            return (yield)
        except pytest.exit.Exception:  # somebody asked for it, with Ctrl-C say: no error
            raise
        except Exception as error:
            session.exitstatus = exitstatus or pytest.ExitCode.TESTS_FAILED
            reporter = self._config.pluginmanager.get_plugin("terminalreporter")
            if reporter is not None:
                self._config.hook.pytest_terminal_summary(
                    terminalreporter=reporter, exitstatus=session.exitstatus, config=self._config
                )
                told = f"{type(error).__name__}: {error_text(error)}"
                reporter.write_line(f"ERROR: error at the end of the session: {told}", red=True)
            return None

    def _finish(self, session: pytest.Session, exitstatus: int) -> None:
        """Write the summary, including benchmarks that never ran, which fail the run."""
        if exitstatus == pytest.ExitCode.OK and self._cases.keys() - self._measurements.keys():
            session.exitstatus = exitstatus = pytest.ExitCode.TESTS_FAILED
        failed_tests = 0 if self.failed_verdicts is None else self.failed_verdicts()
        only_verdicts = exitstatus == pytest.ExitCode.TESTS_FAILED and (
            0 < failed_tests == session.testsfailed
        )
        measuring = pytest.ExitCode.OK if only_verdicts else exitstatus
        measuring = pytest.ExitCode.INTERRUPTED if self._output_closed else measuring
        status = status_of(measuring, [self._measurements[i] for i in self._unselected])
        for case in self._cases.values():
            if _has_outcome(self._told.get(case.id, ())):
                self._record(case)  # it was interrupted after that
            elif case.id not in self._measurements:
                stopped = "stdout was closed" if self._output_closed else "interrupted"
                ended = (
                    session.shouldfail
                    or session.shouldstop
                    or "the session ended before this benchmark"
                )
                reason = stopped if status == "interrupted" else str(ended)
                self._measurements[case.id] = self._run.earlier_measurements.get(
                    case.id, case.unmeasured("not_measured", reason)
                )
        if self.finishing is not None and self.finishing():
            session.exitstatus = exitstatus = exitstatus or pytest.ExitCode.TESTS_FAILED
        if self._problem is None:
            try:
                self._run.recorder.finish(status, self._in_order(), self._benchmark_json())
            except ResultsError as problem:
                self._problem = problem
        if self._problem is not None:
            self._run.recorder.close()
            session.exitstatus = exitstatus or pytest.ExitCode.TESTS_FAILED

    def _index(self) -> str | None:
        """Index the run in the registry; return a message if that is delayed."""
        from gpubench_plugin.results.registry import store_or_spool

        directory = self._run.recorder.directory
        return store_or_spool(self._settings.registry, directory.path.parent.parent, directory)

    @pytest.hookimpl(tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the result table before pytest-benchmark's."""
        terminalreporter.section("gpubench", sep="=")
        glyphs = glyphs_for(getattr(sys.stdout, "encoding", None))
        seen, width = self._in_order(), _width(self._config)
        lines = terminal.summary_lines(seen, width, glyphs) + scaling_lines(seen, width, glyphs)
        for line in lines:
            for text, markup in line:
                terminalreporter.write(text, **markup)
            terminalreporter.write("\n")
        if self._problem is not None:
            terminalreporter.write_line(f"cannot write results: {self._problem}", red=True)
        terminalreporter.write_line(f"recorded in {self._shown_directory()}")
        if self._unindexed is not None:
            terminalreporter.write_line(printable(self._unindexed), yellow=True)

    def _in_order(self) -> list[Measurement]:
        order = self._run.earlier_measurements or self._cases
        return [self._measurements[i] for i in order if i in self._measurements]

    def _benchmark_json(self) -> Json | None:
        carriers = context_of(self._config).carried
        carried = [carriers[m.id] for m in self._in_order() if m.id in carriers]
        if not carried:
            return None
        return pytest_benchmark.benchmark_json(self._config, carried, self._measurements)

    def _shown_directory(self) -> str:
        here = self._config.invocation_params.dir
        path = self._run.recorder.directory.path
        return os.path.relpath(path, here) if path.is_relative_to(here) else str(path)


def _has_outcome(payloads: Sequence[Json]) -> bool:
    """Whether the payloads of a benchmark's phases include its outcome."""
    return any("outcome" in part or "measurement" in part for part in payloads)


def _width(config: pytest.Config) -> int:
    return int(config.get_terminal_writer().fullwidth)
