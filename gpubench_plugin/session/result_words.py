"""Results behind pytest's words of a verbose session: ``PASSED 374.7 µs ±0.9%  +3.1% ✓``."""

from __future__ import annotations

import sys
from collections.abc import Collection, Generator
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.reports.columns import result_line
from gpubench_plugin.reports.text import encodable
from gpubench_plugin.results import report_payload

if TYPE_CHECKING:
    from gpubench_plugin.baselines.last import LastResults
    from gpubench_plugin.config.settings import Settings
    from gpubench_plugin.core.records import Measurement, Result
    from gpubench_plugin.session.recording import SessionRecorder

_Status = tuple[str, str, Any]


class ResultWords:
    """Adds its result to the word of each benchmark among `ids` that passed.

    The change against the last comparable run is looked up from the first result on, and left out
    where that fails: it is a service, and no part of the record.
    """

    def __init__(self, recording: SessionRecorder, settings: Settings, ids: Collection[str]):
        self._recording = recording
        self._settings = settings
        self._ids = ids
        self._last_results: LastResults | None = None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_report_teststatus(
        self, report: pytest.CollectReport | pytest.TestReport
    ) -> Generator[None, _Status, _Status]:
        """Append the result to the word that pytest or another plugin has for the report."""
        status = yield
        if report.when != "call" or report.nodeid not in self._ids or status[0] != "passed":
            return status
        assert isinstance(report, pytest.TestReport)
        measurement = report_payload.read(report).get("measurement")
        if measurement is None:
            return status
        category, letter, word = status
        text = encodable(result_line(measurement, self._earlier(measurement)), sys.stdout)
        if isinstance(word, str):
            return category, letter, f"{word} {text}".strip()
        return category, letter, (f"{word[0]} {text}".strip(), word[1])

    def _earlier(self, measurement: Measurement) -> Result | None:
        try:
            if self._last_results is None:
                from gpubench_plugin.baselines import last

                results_dir, most = self._settings.results_dir, last.READ_BESIDE_MEASURING
                self._last_results = last.LastResults(last.ended_here(results_dir, most, []))
            head = self._recording.run_of([measurement.without_samples()])
            return self._last_results.of(head, measurement.id)
        except Exception:  # whatever lies in the results directory, the session goes on
            return None
