"""End of a session in which nothing was measured since packages are missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.launchers import report_payload
from gpubench_plugin.launchers.context import context_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpubench_plugin.config.case import Case
    from gpubench_plugin.core.records import Measurement
    from gpubench_plugin.session.recording import Recording


class MissingPackages:
    """Turns exit code 0 into 4 where every benchmark lacks a package, and names the packages.

    Benchmarks that this run leaves out by itself, for their number of ranks or their profile, do
    not count. One that was measured, or that is unsupported or skipped for another reason, leaves
    the exit code as it is, and so does an ordinary test.
    """

    def __init__(self, session: pytest.Session, recording: Recording, cases: Mapping[str, Case]):
        self._recording = recording
        self._cases = cases
        self._world_size = context_of(session.config).ranks.started_world_size
        self._has_other_tests = any(item.nodeid not in cases for item in session.items)
        self._missing: dict[str, Mapping[str, str]] = {}
        self._error = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the package that a benchmark lacks."""
        if package := report_payload.read(report).get("missing_package"):
            self._missing[report.nodeid] = package

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Exit with code 4, once all outcomes are final."""
        measurements = self._recording.measurements
        lacking = [i for i, m in measurements.items() if self._lacks_package(m)]
        others = [m for i, m in measurements.items() if i not in lacking]
        if (
            session.exitstatus == pytest.ExitCode.OK
            and lacking
            and not self._has_other_tests
            and all(map(self._is_left_out, others))
        ):
            session.exitstatus = pytest.ExitCode.USAGE_ERROR
            self._error = self._text(lacking)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name the packages, and how to install them."""
        if self._error:
            terminalreporter.write_line(f"ERROR: {self._error}", red=True)

    def _lacks_package(self, measurement: Measurement) -> bool:
        return measurement.outcome == "unsupported" and measurement.id in self._missing

    def _is_left_out(self, measurement: Measurement) -> bool:
        case = self._cases.get(measurement.id)
        return (
            measurement.outcome == "skipped"
            and case is not None
            and case.skip_reason(self._world_size) is not None
        )

    def _text(self, lacking: list[str]) -> str:
        packages = [self._missing[node_id] for node_id in lacking]
        names = " and ".join(sorted({package["name"] for package in packages}))
        commands = "; ".join(dict.fromkeys(package["install"] for package in packages))
        return f"nothing was measured, for lack of {names}: {commands}"
