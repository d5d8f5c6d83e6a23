"""The role that judges: it adds the gate items, and says at the end what was found."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.reports.glyphs import glyphs_for
from gpubench_plugin.session.gate import report as github
from gpubench_plugin.session.gate import summary
from gpubench_plugin.session.gate.items import GateItem
from gpubench_plugin.session.gate.rerunning import remember_benchmarks

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from gpubench_plugin.session.gate.judgement import Judgement
    from gpubench_plugin.session.gate.lookup import Lookup


class Gate:
    """Judges what a session with ``--baseline`` measures; with ``--gate`` tests fail for it."""

    def __init__(self, config: pytest.Config, lookup: Lookup, judgement: Judgement):
        self._config = config
        self._lookup = lookup
        self._judgement = judgement
        self._is_gate = bool(lookup.settings.gate)
        self._places: dict[str, tuple[str, int]] = {}
        self._failed: set[str] = set()

    def add_items(self, session: pytest.Session, benchmarks: Sequence[pytest.Item]) -> None:
        """Append a gate item for each of the `benchmarks` to what `session` runs.

        Last of all, also of what other plugins have reordered: by then all have been measured.
        """
        for item in benchmarks:
            file, line, _ = item.location
            self._places[item.nodeid] = file, (line or 0) + 1
        if self._is_gate:
            ending = self._judgement.ending
            session.items.extend(GateItem.of(item, ending) for item in benchmarks)

    @property
    def failed_tests(self) -> int:
        """Tests that failed because of a verdict, and of nothing else."""
        return len(self._failed)

    def close(self) -> bool:
        """Judge now, if that has not been done; whether the session must not end well."""
        return self._judgement.fails and self._is_gate

    def pytest_report_collectionfinish(self) -> list[str]:
        """The header: what is judged by what."""
        return summary.header(self._lookup)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """A skipped gate item stands where its benchmark stands, as a failed one does."""
        report = yield
        if isinstance(item, GateItem):
            if report.skipped and isinstance(report.longrepr, tuple):
                file, line, _ = item.location
                report.longrepr = (file, (line or 0) + 1, report.longrepr[2])
            if report.failed:
                self._failed.add(item.nodeid)
        return report

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Let ``--lf`` know which benchmarks to measure again."""
        remember_benchmarks(self._config)

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter, exitstatus: int
    ) -> None:
        """Say all verdicts, below the table of what was measured."""
        interrupted = exitstatus == pytest.ExitCode.INTERRUPTED
        glyphs = glyphs_for(getattr(sys.stdout, "encoding", None))
        width = int(self._config.get_terminal_writer().fullwidth)
        terminalreporter.section("gate" if self._is_gate else "comparison", sep="=")
        for line in summary.lines(
            self._judgement, self._lookup, width, glyphs, interrupted=interrupted
        ):
            for text, markup in line:
                terminalreporter.write(text, **markup)
            terminalreporter.write("\n")
        for said in github.told(self._judgement, self._places, self._config):
            terminalreporter.write_line(said)
