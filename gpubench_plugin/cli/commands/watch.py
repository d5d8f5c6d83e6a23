"""``gpubench watch``: follow a run that is being written, from any terminal."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Mapping
from time import monotonic, sleep
from typing import ClassVar, Final

from gpubench_plugin.cli.commands._places import (
    RUN,
    add_locations,
    echo,
    exit_code,
    output_width,
    resolver_of,
    show,
)
from gpubench_plugin.cli.commands.base import Command
from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.core.verdicts import LAST
from gpubench_plugin.reports.live import current_line, ended_line, live_json, live_lines, run_line
from gpubench_plugin.results.journal import JournalTail
from gpubench_plugin.results.progress import MOST_LOSSES, BenchmarkProgress, RunProgress
from gpubench_plugin.results.reader import OUTLINE, RunReader, intact, is_being_written
from gpubench_plugin.results.run_directory import RunDirectory, find_run

_POLL_S: Final = 0.5
"""As quick as eyes follow numbers; a look costs a tenth of a millisecond."""
_LINE_INTERVAL_S: Final = 30.0
"""Between two lines about the same phase where stdout is no terminal."""
_LOG_WIDTH: Final = 120
"""Columns where stdout is no terminal."""


class Watch(Command):
    """Follows a run until it ends, by reading its journal."""

    help: ClassVar[str] = "follow a running run: phase, progress, loss, speed, time left"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The run, and whether to follow it."""
        help_text = f"{RUN['help']} (default: {LAST})"
        parser.add_argument("run", nargs="?", metavar="RUN", default=LAST, help=help_text)
        parser.add_argument("--once", action="store_true", help="print the current state and exit")
        add_locations(parser)

    def run(self, options: argparse.Namespace) -> int:
        """Follow the run, or print its state."""
        if options.format == "json" and not options.once:
            raise UsageProblem("--format=json: for the state at one time; add --once")
        places = resolver_of(options)
        directory = find_run(places.results_dir, options.run, cwd=places.here)
        tail = JournalTail(directory.journal, OUTLINE, points=MOST_LOSSES)
        run = RunProgress(run_id=directory.run_id)
        if not options.once:
            _Watcher(directory, tail, run).follow()
        else:
            state = _state(directory, tail, run)
            width = output_width() if sys.stdout.isatty() else _LOG_WIDTH
            show(options, live_json(run, state), live_lines(run, state, width))
        return exit_code(RunReader(directory).overview().error)


def _state(directory: RunDirectory, tail: JournalTail, run: RunProgress) -> str:
    """Take in all lines so far, and tell the state of the run as ``gpubench runs list`` does."""
    is_written = is_being_written(directory)  # before the lines: none comes after them
    while lines := tail.read():
        with intact(directory):
            for line in lines:
                run.add(line)
    if is_written:
        return "running"
    for live in run.running.values():
        live.remaining_s = None  # nothing of it is to come
    return run.status or "interrupted"


class _Watcher:
    """Shows a run until it ends: rewritten in place on a terminal, else as plain lines."""

    def __init__(self, directory: RunDirectory, tail: JournalTail, run: RunProgress):
        self._directory = directory
        self._tail = tail
        self._run = run
        self._is_terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        self._rows = 0
        self._line_at = 0.0
        self._phase = ""
        self._known: Mapping[str, str] = {}

    def follow(self) -> None:
        """Show the run until nobody writes it, and how it ended."""
        state = _state(self._directory, self._tail, self._run)
        self._known = dict(self._run.outcomes)  # of these, only the number is told
        if not self._is_terminal:
            echo([run_line(self._run, state)])
        while state == "running":
            self._show(state)
            sleep(_POLL_S)
            state = _state(self._directory, self._tail, self._run)
        last, event = self._run.current, "interrupted" if self._run.status else "killed"
        end = [] if last is None else [f"it was {event} in {last.id}, phase {last.phase}"]
        self._write([run_line(self._run, state), *end])

    def _show(self, state: str) -> None:
        lines: list[str] = []
        if self._is_terminal:
            lines = live_lines(self._run, state, output_width() - 1)
        elif (live := self._run.current) is not None and self._is_due(live):
            lines = [current_line(self._run, live.id)]
        self._write(lines)
        self._rows = len(lines) if self._is_terminal else 0

    def _write(self, lines: Iterable[str]) -> None:
        """Write `lines` in place of those that are rewritten.

        Above them is a line about each benchmark that has ended since, once more after another try.
        """
        if self._rows:
            sys.stdout.write(f"\x1b[{self._rows}A\x1b[J")
        outcomes = self._run.outcomes.items()
        ended = [name for name, outcome in outcomes if self._known.get(name) != outcome]
        echo([*(ended_line(self._run, name) for name in ended), *lines])
        sys.stdout.flush()
        self._known = dict(outcomes)

    def _is_due(self, live: BenchmarkProgress) -> bool:
        phase = f"{live.id} {live.phase}"
        if phase == self._phase and monotonic() - self._line_at < _LINE_INTERVAL_S:
            return False
        self._phase, self._line_at = phase, monotonic()
        return True
