"""The controller's role, on rank zero only: open the run, record every benchmark, report.

The stages of this side, in order: run directory → journal → (benchmarks run) → summary → terminal.
"""

from __future__ import annotations

import math
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from gpubench_plugin import channel
from gpubench_plugin.channel import CARRIED, PROGRESS, TRACES
from gpubench_plugin.errors import ResultsError
from gpubench_plugin.open_run import open_run
from gpubench_plugin.records import Measurement
from gpubench_plugin.reports import terminal
from gpubench_plugin.reports.glyphs import glyphs_for
from gpubench_plugin.reports.scaling import scaling_lines
from gpubench_plugin.reports.status import StatusLine
from gpubench_plugin.results import pytest_benchmark

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from gpubench_plugin.cases import Case
    from gpubench_plugin.records import Json, RunStatus
    from gpubench_plugin.settings import Settings

_STATUS: Final[dict[int, RunStatus]] = {
    pytest.ExitCode.OK: "complete",
    pytest.ExitCode.NO_TESTS_COLLECTED: "complete",
    pytest.ExitCode.INTERRUPTED: "interrupted",
}


class Session:
    """Records the selected benchmarks of one pytest session."""

    def __init__(self, config: pytest.Config, settings: Settings, cases: Sequence[Case]):
        self._config = config
        self._settings = settings
        self._cases = {case.id: case for case in cases}
        self._told: dict[str, list[Json]] = {}
        self._measurements: dict[str, Measurement] = {}
        self._problem: ResultsError | None = None
        self._status = _status_line()

    def start(self) -> None:
        """Open the run; nothing has been measured yet.

        Raises:
            UsageProblem: the results, or ``--benchmark-json``, could not be written.
        """
        self._run = open_run(self._config, self._settings, self._cases)
        self._unselected = self._run.earlier.keys() - self._cases.keys()
        self._measurements = {i: self._run.earlier[i] for i in self._unselected | self._run.kept}
        self._config.stash[TRACES] = self._run.recorder.directory.traces
        self._config.stash[PROGRESS] = self._show_progress

    @property
    def path(self) -> Path:
        """The run's folder."""
        return self._run.recorder.directory.path

    @property
    def kept(self) -> frozenset[str]:
        """Benchmarks that an earlier session of the run has measured: they need not run."""
        return self._run.kept

    def pytest_report_collectionfinish(self) -> list[str]:
        """The header: what will be measured, on what, and where it is recorded."""
        cases = list(self._cases.values())
        lines = terminal.header_lines(
            device=self._devices(),
            precision=tuple(dict.fromkeys(case.precision for case in cases)),
            world_sizes=tuple(dict.fromkeys(case.world_size for case in cases)),
            preset=", ".join(dict.fromkeys(c.configuration.experiment.preset for c in cases)),
            run_directory=self._shown_directory(),
            width=_width(self._config),
        )
        if self._settings.resume:
            to_go = len(self._cases.keys() - self.kept)
            lines.append(f"resumed: {len(self.kept)} measured before, {to_go} to go")
        return lines

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Say on a terminal that a benchmark is on its way to steady state."""
        if nodeid in self._cases:
            self._status.show("checking and warming up")

    def _show_progress(self, rounds: int, half_width: float) -> None:
        known = f", ±{half_width:.2%}" if half_width < math.inf else ""
        self._status.show(f"{rounds} round{'s' * (rounds != 1)}{known}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record a benchmark as soon as its last report is there."""
        self._status.clear()
        case = self._cases.get(report.nodeid)
        if case is None:
            return
        if report.when == "setup":  # of a rerun, too
            self._told[case.id] = []
        self._told[case.id].append(channel.read(report))
        if report.when == "teardown":
            self._record(case)

    def _record(self, case: Case) -> None:
        told = self._told.pop(case.id)
        measurement = _measurement(case, told)
        # The journal keeps the samples; for the summary the metrics are enough.
        self._measurements[measurement.id] = replace(measurement, samples=None)
        if self._problem is not None:
            return
        try:
            for part in told:
                for event in part.get("events", ()):
                    self._run.recorder.event(measurement.id, event)
            self._run.recorder.record(measurement)
        except ResultsError as problem:
            self._problem = problem

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        """Stop once results can no longer be written: the next ones would be lost."""
        handled = yield
        if self._problem is not None:
            item.session.shouldfail = f"results could not be written: {self._problem}"
        return handled

    def pytest_benchmark_update_json(self, output_json: Json) -> None:
        """Add our metrics, and the run they belong to, to every file pytest-benchmark writes.

        The devices are not part of its ``machine_info``: that is compared before it is known
        whether a session has benchmarks of ours.
        """
        pytest_benchmark.add_metrics(output_json, self._measurements)
        output_json["gpubench"] = {
            "run_id": self._run.recorder.directory.path.name,
            "devices": self._device_models(),
        }

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(
        self, session: pytest.Session, exitstatus: int
    ) -> Generator[None, object, object]:
        """Write everything down before anybody else ends the session, and survive who fails then.

        pytest-benchmark saves its files here, and an error of that would cost the whole report.
        """
        self._finish(session, exitstatus)
        try:
            return (yield)
        except Exception as error:
            session.exitstatus = exitstatus or pytest.ExitCode.TESTS_FAILED
            reporter = self._config.pluginmanager.get_plugin("terminalreporter")
            if reporter is not None:
                self._config.hook.pytest_terminal_summary(
                    terminalreporter=reporter, exitstatus=session.exitstatus, config=self._config
                )
                said = f"ERROR: the session's end failed: {type(error).__name__}: {error}"
                reporter.write_line(said, red=True)
            return None

    def _finish(self, session: pytest.Session, exitstatus: int) -> None:
        """Write the summary; a benchmark that never ran is in it too, and then not all is well."""
        if exitstatus == pytest.ExitCode.OK and self._cases.keys() - self._measurements.keys():
            session.exitstatus = exitstatus = pytest.ExitCode.TESTS_FAILED
        status = _status(exitstatus, [self._measurements[i] for i in self._unselected])
        for case in self._cases.values():
            if any(
                "outcome" in part or "measurement" in part for part in self._told.get(case.id, ())
            ):
                self._record(case)  # it was interrupted after that
            elif case.id not in self._measurements:
                reason = "interrupted" if status == "interrupted" else _why_ended(session)
                self._measurements[case.id] = self._run.earlier.get(
                    case.id, case.record("not_measured", reason)
                )
        if self._problem is None:
            try:
                self._run.recorder.finish(status, self._in_order(), self._benchmark_json())
            except ResultsError as problem:
                self._problem = problem
        if self._problem is not None:
            self._run.recorder.close()
            session.exitstatus = exitstatus or pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The table of results, before pytest-benchmark's."""
        terminalreporter.section("gpubench", sep="=")
        glyphs = glyphs_for(getattr(sys.stdout, "encoding", None))
        seen, width = self._in_order(), _width(self._config)
        lines = terminal.summary_lines(seen, width, glyphs) + scaling_lines(seen, width, glyphs)
        for line in lines:
            for text, markup in line:
                terminalreporter.write(text, **markup)
            terminalreporter.write("\n")
        if self._problem is not None:
            terminalreporter.write_line(f"results could not be written: {self._problem}", red=True)
        terminalreporter.write_line(f"recorded in {self._shown_directory()}")

    def _in_order(self) -> list[Measurement]:
        order = self._run.earlier or self._cases
        return [self._measurements[i] for i in order if i in self._measurements]

    def _benchmark_json(self) -> Json | None:
        carriers = self._config.stash.get(CARRIED, {})
        carried = [carriers[m.id] for m in self._in_order() if m.id in carriers]
        if not carried:
            return None
        return pytest_benchmark.benchmark_json(self._config, carried, self._measurements)

    def _devices(self) -> str:
        models = self._device_models()
        named = ", ".join(f"{name} ({model})" for name, model in models.items())
        if "auto" in self._settings.devices and "cpu" in models:
            return f"{named}; auto: no accelerator found"
        return named

    def _device_models(self) -> dict[str, str]:
        return {case.device.torch_name: case.device.model for case in self._cases.values()}

    def _shown_directory(self) -> str:
        here = self._config.invocation_params.dir
        path = self._run.recorder.directory.path
        return os.path.relpath(path, here) if path.is_relative_to(here) else str(path)


def _status(exitstatus: int, rest: Iterable[Measurement]) -> RunStatus:
    """The status of a run, of which `rest` was not selected when it was resumed."""
    status = _STATUS.get(exitstatus, "failed")
    outcomes = {measurement.outcome for measurement in rest}
    if status == "complete" and not outcomes <= {"measured", "skipped", "unsupported"}:
        return "interrupted" if "not_measured" in outcomes else "failed"
    return status


def _why_ended(session: pytest.Session) -> str:
    """Why a benchmark was not reached."""
    return str(session.shouldfail or session.shouldstop or "the session ended before it")


def _measurement(case: Case, told: Sequence[Json]) -> Measurement:
    """The record that the phases of one test add up to; what failed carries no number."""
    endings = [part for part in told if "outcome" in part]
    if endings:
        # What all ranks agreed on at the end outranks what this one saw first.
        mismatched = (part for part in endings if part["outcome"] == "mismatched_ranks")
        ending = next(mismatched, endings[0])
        return case.record(ending["outcome"], ending["reason"])
    for part in told:
        if "measurement" in part:
            return Measurement.from_json(part["measurement"])
    reasons = [part["not_measured"] for part in told if part.get("not_measured")]
    return case.record("not_measured", *(reasons or ["the test did not call gpubench"]))


def _status_line() -> StatusLine:
    """A line on this process' terminal, however pytest captures output during a test."""
    try:
        terminal = os.dup(sys.stdout.fileno()) if sys.stdout.isatty() else None
    except (OSError, ValueError):
        terminal = None
    glyphs = glyphs_for(getattr(sys.stdout, "encoding", None))

    def write(text: str) -> None:
        if terminal is not None:
            os.write(terminal, text.encode(sys.stdout.encoding or "utf-8", "replace"))

    return StatusLine(write, terminal is not None, glyphs=glyphs)


def _width(config: pytest.Config) -> int:
    return int(config.get_terminal_writer().fullwidth)
