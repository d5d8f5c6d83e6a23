"""``--report``: the page of a session's run, written after its results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.core.errors import GpubenchError
from gpubench_plugin.reports.text import printable

if TYPE_CHECKING:
    from pathlib import Path

    from gpubench_plugin.session.recording import SessionRecorder


@dataclass(eq=False)  # plugins are hashed
class ReportWriter:
    """Writes the page of the `recording` to `file`; one that cannot be written fails the session.

    `registry` is its URL, as that of the session.
    """

    file: Path
    recording: SessionRecorder
    registry: str
    _problem: str = ""

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write it once the run is closed and known to the registry."""
        from gpubench_plugin.baselines.resolve import Resolver
        from gpubench_plugin.cli.report.writing import write_run

        results_dir = self.recording.path.parent.parent
        try:
            with Resolver(self.registry, results_dir, results_dir) as resolver:
                write_run(self.file, self.recording.path, resolver)
        except GpubenchError as error:
            self._problem = str(error)
            session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say where it is."""
        text = f"no report: {self._problem}" if self._problem else f"report: {self.file}"
        terminalreporter.write_line(printable(text), red=bool(self._problem))
