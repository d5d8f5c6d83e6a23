"""When a log of a CI job gets a line about the running benchmark."""

from __future__ import annotations

import re
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from gpubench_plugin.session import live_status
from gpubench_plugin.session.live_status import LiveStatus


class Reporter:
    """pytest's, which has begun a line with a name."""

    currentfspath: object = "bench/test_it.py::test_a "

    def __init__(self) -> None:
        self.text = str(self.currentfspath)
        self.times_s: list[float] = []

    def write_line(self, line: str) -> None:
        self.text += f"\n{line}\n"
        self.currentfspath = None

    def write(self, text: str, *, flush: bool) -> None:
        self.text += text


@pytest.fixture
def reporter(monkeypatch: pytest.MonkeyPatch) -> Reporter:
    """The reporter of a CI job, on a clock that its test sets."""
    monkeypatch.setenv("CI", "true")
    reporter = Reporter()
    monkeypatch.setattr(live_status, "monotonic", lambda: reporter.times_s.pop(0))
    return reporter


def status(reporter: Reporter, times_s: list[float], *, options: Any = None) -> LiveStatus:
    """The display of two benchmarks, the first of which runs, at those times."""
    reporter.times_s = times_s
    capture = SimpleNamespace(global_and_fixture_disabled=nullcontext)
    plugins = {"terminalreporter": reporter, "capturemanager": capture}
    manager = SimpleNamespace(
        get_plugin=plugins.get, has_plugin=lambda name: plugins.get(name) is not None
    )
    options = {"capture": "fd", "log_cli_level": None, **(options or {})}
    config: Any = SimpleNamespace(
        pluginmanager=manager,
        getoption=lambda name, default=None: options.get(name, default),
        getini=lambda name: False,
    )
    names = {"bench/test_it.py::test_a": "test_a", "b": "test_b"}
    return LiveStatus(config, names)


def test_lines_are_few_however_many_benchmarks_there_are(reporter: Reporter) -> None:
    """One in 10 s at a change of the phase, one in 30 s else; a long phase has one as it begins."""
    phases = ["build", "check", "compile", "warm-up", "measure"]
    # Each event reads the clock once, and once more for a line.
    shown = status(reporter, [0, 0, 1, 2, 2, 11.9, 12.1, 12.1, 30, 42.2, 42.2])
    for phase in phases:
        shown.add("bench/test_it.py::test_a", {"event": "phase", "phase": phase})
    for rounds in (100, 200):
        progress = {"event": "progress", "rounds": rounds, "half_width": 0.012, "remaining_s": 3.2}
        shown.add("bench/test_it.py::test_a", progress)
    said = re.findall("^gpubench: (.*)", reporter.text, re.MULTILINE)
    phases = ["build", "compile", "measure", "measure, 200 rounds, ±1.2%, 3 s left"]
    assert said == [f"[1/2] test_a: {phase}" for phase in phases]
    assert reporter.text.endswith("left\nbench/test_it.py::test_a "), "as pytest left it"


def test_benchmarks_that_are_over_are_counted(reporter: Reporter) -> None:
    """Those that a resumed run has measured, and each that ends."""
    reporter.currentfspath = None
    shown = status(reporter, [0, 0])
    shown.skip(["bench/test_it.py::test_a"])
    shown.end("bench/test_it.py::test_a")
    shown.add("b", {"event": "phase", "phase": "build"})
    assert reporter.text.endswith("\ngpubench: [2/2] test_b: build\n")


@pytest.mark.parametrize("options", [{"capture": "no"}, {"log_cli_level": "INFO"}])
def test_status_line_leaves_the_terminal_to_the_tests(
    reporter: Reporter, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ``-s`` and live logs, what tests write appears where the status line would be.

    There are lines in its place, as in a CI job also where stdout is a terminal.
    """
    monkeypatch.setattr("sys.stdout", SimpleNamespace(encoding="utf-8", isatty=lambda: True))
    asked: list[bool] = []
    target = "gpubench_plugin.session.live_status.status_line"
    line = SimpleNamespace(show=lambda text, *, at_once: None)
    monkeypatch.setattr(target, lambda *, enabled: asked.append(enabled) or line)
    status(reporter, [])
    monkeypatch.delenv("CI")
    shared = status(reporter, [0, 0], options=options)
    shared.add("b", {"event": "phase", "phase": "build"})
    assert "gpubench: [1/2] test_b: build\n" in reporter.text
    status(reporter, [])
    assert asked == [False, False, True]


def test_lines_are_spelt_as_stdout_can_encode_them(
    reporter: Reporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it has no UTF-8, signs are ASCII."""
    monkeypatch.setattr("sys.stdout", SimpleNamespace(encoding="ascii", isatty=lambda: True))
    shown = status(reporter, [0, 0, 1, 40, 40])
    for phase in ("build", "measure"):
        shown.add("b", {"event": "phase", "phase": phase})
    shown.add("b", {"event": "progress", "rounds": 3, "half_width": 0.01})
    assert "test_b: measure, 3 rounds, +-1.0%\n" in reporter.text
