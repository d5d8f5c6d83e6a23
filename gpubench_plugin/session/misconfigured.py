"""End of a session in which nothing failed but benchmarks that are misconfigured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.core.words import counted
from gpubench_plugin.launchers import report_payload

if TYPE_CHECKING:
    from gpubench_plugin.session.recording import Recording


class MisconfiguredBenchmarks:
    """Turns exit code 1 into 4 where all failures are of the configuration.

    A failed test, benchmark or gate, or one that was not run, leaves the exit code as it is.
    """

    def __init__(self, recording: Recording):
        self._recording = recording
        self._failed_reports = 0
        self._error = ""

    @pytest.hookimpl(tryfirst=True)  # before the recording drops what it has read
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count the failures that are of the configuration."""
        if report.failed and report_payload.read(report).get("outcome") == "misconfigured":
            self._failed_reports += 1

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Exit with code 4, once all outcomes are final."""
        if session.exitstatus != pytest.ExitCode.TESTS_FAILED:
            return
        outcomes = [m.outcome for m in self._recording.measurements.values()]
        number = outcomes.count("misconfigured")
        are_all = session.testsfailed == self._failed_reports
        if number and are_all and not self._recording.has_failed:
            session.exitstatus = pytest.ExitCode.USAGE_ERROR
            names = counted(number, "misconfigured benchmark")
            self._error = f"{names}; nothing else failed, so the exit code is 4"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Tell why the exit code is 4."""
        if self._error:
            terminalreporter.write_line(f"ERROR: {self._error}", red=True)
