"""Display of the running benchmark: a status line on a terminal, lines in the log of a CI job."""

from __future__ import annotations

import math
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from time import monotonic
from typing import TYPE_CHECKING, Final

from gpubench_plugin.config.layers import PROFILES
from gpubench_plugin.core.format import rough_duration
from gpubench_plugin.reports.live import current_line
from gpubench_plugin.reports.status import status_line
from gpubench_plugin.reports.text import encodable
from gpubench_plugin.results.progress import RunProgress

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pytest

    from gpubench_plugin.config.sections import MeasureSection
    from gpubench_plugin.core.records import Json

_LINE_INTERVAL_S: Final = 10.0
"""Between two lines of a log: sessions have thousands of short benchmarks."""
_SAME_PHASE_S: Final = 30.0
"""The same within one phase."""
_FEW: Final = 3
"""Number of contended benchmarks that tells the cost of each: one or two may be chance."""
_LONG_PHASES: Final = frozenset({"compile", "train"})
"""Phases that may last minutes without an event, so that their begin is worth a line."""


class LiveStatus:
    """Shows how far the session is, from the events of its benchmarks.

    On a terminal that is the row below pytest's line; nothing where the terminal cannot do it.
    Where tests may write there as well (``-s``, live logs), and in a CI job (``CI`` is set), whose
    log does not move a cursor even where stdout is a terminal, there are plain lines: when the
    phase changes, but not more than one in 10 s, and every 30 s within a phase.
    """

    def __init__(self, config: pytest.Config, names: Mapping[str, str]):
        self._config = config
        self._names = names
        self._run = RunProgress(run_id="", ids=tuple(names))
        is_shared = _shares_terminal(config)
        self._writes_lines = bool(os.environ.get("CI")) or (is_shared and sys.stdout.isatty())
        self._line = status_line(enabled=not self._writes_lines and not is_shared)
        self._written_at = -math.inf
        self._written_phase = ("", "")
        self._text = ""
        self._contended_s: list[float] = []

    def skip(self, ids: Iterable[str]) -> None:
        """Count those benchmarks as done."""
        self._run.outcomes |= dict.fromkeys(ids, "measured")

    def add(self, benchmark: str, event: Json) -> None:
        """Show what an `event` of the running benchmark says."""
        self._run.add({**event, "benchmark": benchmark})
        live = self._run.current
        if live is None:
            return
        self._text = current_line(self._run)
        self._line.show(self._text, at_once=event["event"] == "phase")
        if self._writes_lines and self._is_due((benchmark, live.phase)):
            self._written_at, self._written_phase = monotonic(), (benchmark, live.phase)
            self.write(benchmark, current_line(self._run, self._names[benchmark]))

    def end(self, benchmark: str) -> None:
        """Count the `benchmark` as done."""
        self._run.add({"event": "benchmark", "id": benchmark, "outcome": ""})
        self._text = ""

    def show(self, text: str) -> None:
        """Show `text` until the next event."""
        self._line.show(text, at_once=True)

    def tell(self, text: str) -> None:
        """Show `text` while no benchmark runs, in a log once."""
        if self._run.current is not None or text == self._text:
            return
        self._text = text
        self._line.show(text, at_once=True)
        if self._writes_lines and text:
            self.write("", text)

    def clear(self) -> None:
        """Make way for other output."""
        self._line.clear()

    def restore(self) -> None:
        """Show the last text again after other output."""
        if self._text:
            self._line.show(self._text, at_once=True)

    def _is_due(self, phase: tuple[str, str]) -> bool:
        passed_s = monotonic() - self._written_at
        if phase == self._written_phase:
            return passed_s >= _SAME_PHASE_S
        return passed_s >= _LINE_INTERVAL_S or phase[1] in _LONG_PHASES

    def tell_contention(self, benchmark: str, spent_s: float, section: MeasureSection) -> None:
        """Take in what a contended `benchmark` has cost; tell once what each costs.

        After the third one, while others are left, with the option that shortens it, if one does.
        """
        if section.by == "steps" or section.profile:
            return
        self._contended_s.append(spent_s)
        if len(self._contended_s) == _FEW and len(self._run.outcomes) < self._run.total:
            most_s = PROFILES["quick"]["max_time_s"]
            text = (
                "other processes use the CPU: each benchmark takes about "
                f"{rough_duration(median(self._contended_s))}; "
                f"--measure.profile=quick measures for {most_s:g} s at most"
            )
            self.write(benchmark, text)

    def write(self, benchmark: str, text: str) -> None:
        """Write a line during that `benchmark`, although pytest captures its output."""
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        capture = self._config.pluginmanager.get_plugin("capturemanager")
        if reporter is None:
            return
        with nullcontext() if capture is None else capture.global_and_fixture_disabled():
            begun = reporter.currentfspath  # what pytest has written of its line, if anything
            # With -q no file begins their line.
            of_dots = "\n" * (self._config.getoption("verbose", 0) < 0)
            reporter.write_line(of_dots + encodable(f"gpubench: {text}", sys.stdout))
            if isinstance(begun, str | Path):  # else nothing, or a line with its result
                file = f"{benchmark.partition('::')[0]} "
                reporter.write(begun if isinstance(begun, str) else file, flush=True)
                reporter.currentfspath = begun


def _shares_terminal(config: pytest.Config) -> bool:
    """Whether tests may write to the terminal while they run, or nobody else does."""
    plugins = config.pluginmanager  # any of pytest's own may be switched off, with its options
    is_logging = config.getoption("log_cli_level", None) is not None or (
        plugins.has_plugin("logging") and config.getini("log_cli")
    )
    is_captured = config.getoption("capture", "no") in {"fd", "sys"}
    return bool(is_logging) or not is_captured or not plugins.has_plugin("terminalreporter")
