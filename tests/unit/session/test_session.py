"""Tests of how a session ends that cannot write, whose output is closed, or whose gate fails."""

from __future__ import annotations

import os
import signal
from contextlib import nullcontext
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.core.errors import ResultsError
from gpubench_plugin.launchers.context import CONTEXT, RunContext
from gpubench_plugin.session import recording as room
from gpubench_plugin.session.recording import SessionRecorder
from gpubench_plugin.session.run import RunToWrite

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubench_plugin.core.records import Measurement


class Files:
    """In the place of a run's files: keeps what was written last, or has no room for it."""

    directory: Any = SimpleNamespace(
        path=Path("results/x/run"), traces=None, checkpoints=None, journal=Path(__file__)
    )
    environment: Any = MappingProxyType({})

    def __init__(self, *, full: bool = False, asked: signal.Signals | None = None):
        self._full = full
        self._asked = asked
        self.status = ""
        self.reasons: list[str] = []

    def keep_verdicts(self, comparison: object) -> None:
        if self._full:
            raise ResultsError("no space left")

    def finish(self, status: str, benchmarks: Sequence[Measurement], *_: object) -> None:
        if self._asked is not None:
            signal.raise_signal(self._asked)
        self.status, self.reasons = status, [one.reason for one in benchmarks]


def started(
    monkeypatch: pytest.MonkeyPatch, files: Files, *cases: Any, of_pytest: Any = None
) -> SessionRecorder:
    monkeypatch.setattr(room, "open_run", lambda *_: RunToWrite(recorder=files))
    monkeypatch.setattr(room, "store_run", lambda *_: None)
    given: Any = SimpleNamespace(registry="none")
    context = RunContext(settings=given, ranks=given)
    config = SimpleNamespace(
        stash={CONTEXT: context},
        getoption=lambda name, default="no": default,
        getini=lambda name: False,
        pluginmanager=SimpleNamespace(
            has_plugin=lambda name: False, get_plugin={"session": of_pytest}.get
        ),
    )
    session = SessionRecorder(config, {case.id: case for case in cases})
    session.start()
    return session


class Emptied(Files):
    """A run whose journal was replaced by what holds nothing."""

    directory: Any = SimpleNamespace(**{**vars(Files.directory), "journal": Path(os.devnull)})


class AskedToEnd(Exception):  # no error
    """Raised by a signal."""


def end(number: int, frame: object) -> None:
    raise AskedToEnd


def ended(session: SessionRecorder, code: int) -> Any:
    """The end of pytest's session, after `session` has written everything."""
    of_pytest = SimpleNamespace(exitstatus=code, testsfailed=0, shouldfail="", shouldstop="")
    next(session.pytest_sessionfinish(of_pytest, code))
    return of_pytest


def test_results_that_cannot_be_written_stop_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever would be measured next would be lost; the end says so, and nothing of no results."""
    monkeypatch.setattr(SessionRecorder, "_display_directory", lambda self: "it")
    monkeypatch.setattr(room.pytest_benchmark, "hide_table", lambda *_: None)
    of_pytest: Any = SimpleNamespace(shouldfail="")
    for files, said, end in (
        (Files(), "", ""),
        (
            Files(full=True),
            "cannot write results: no space left",
            "gpubench: cannot write results: no space left; what was recorded before is in it\n",
        ),
        (
            Emptied(full=True),
            "cannot write results: no space left",
            "gpubench: cannot write results: no space left\n",
        ),
    ):
        session = started(monkeypatch, files, of_pytest=of_pytest)
        session.keep_verdicts(None)
        session.pytest_runtest_logfinish("test_it.py::test_it")
        assert of_pytest.shouldfail == said
        texts: list[str] = []
        reporter: Any = SimpleNamespace(
            section=lambda title, texts=texts, **_: texts.append(f"{title}: "),
            write=lambda text, texts=texts, **_: texts.append(text),
        )
        session.pytest_terminal_summary(reporter)
        assert "".join(texts) == end


@pytest.mark.parametrize(
    ("fails", "before", "after"), [(True, 0, 1), (False, 0, 0), (True, 2, 2), (True, 4, 4)]
)
def test_gate_that_fails_as_a_whole_fails_the_session(
    monkeypatch: pytest.MonkeyPatch, fails: bool, before: int, after: int
) -> None:
    """Although every test has passed; another end is not made a failed test."""
    session = started(monkeypatch, Files())
    session.close_gate = lambda: fails
    assert ended(session, before).exitstatus == after


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (BrokenPipeError(), "interrupted", "stdout was closed"),
        (RuntimeError(), "failed", "the session ended before this benchmark"),
    ],
)
def test_closed_output_interrupts_the_run(
    monkeypatch: pytest.MonkeyPatch, error: Exception, status: str, reason: str
) -> None:
    """``pytest | head`` ends within pytest, and no benchmark has failed."""
    files = Files()
    case: Any = SimpleNamespace(
        id="a",
        name="a",
        adopted=False,
        world_size=1,
        unmeasured=lambda _, reason: SimpleNamespace(id="a", reason=reason),
    )
    session = started(monkeypatch, files, case)
    with pytest.raises(type(error)) as raised:
        raise error
    session.pytest_internalerror(raised)
    assert ended(session, 3).exitstatus == 3
    assert (files.status, files.reasons) == (status, [reason])


@pytest.mark.parametrize("asked", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(("code", "heard"), [(2, False), (0, True)])
def test_signal_does_not_disturb_what_is_being_written(
    monkeypatch: pytest.MonkeyPatch, asked: signal.Signals, code: int, heard: bool
) -> None:
    """It ends the session afterwards, unless that is what an earlier one has done already."""
    files = Files(asked=asked)
    session = started(monkeypatch, files)
    before = signal.signal(asked, end)
    try:
        with pytest.raises(AskedToEnd) if heard else nullcontext():
            ended(session, code)
        assert signal.getsignal(asked) is end
    finally:
        signal.signal(asked, before)
    assert files.status == ("complete" if heard else "interrupted")


def test_ctrl_c_while_the_table_is_shown_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The session ends in order, with the code of an interruption; everything is written."""
    session = started(monkeypatch, Files())
    finish = session.pytest_sessionfinish(
        SimpleNamespace(testsfailed=0, shouldfail="", shouldstop=""), 0
    )
    next(finish)
    with pytest.raises(pytest.exit.Exception, match="interrupted by SIGINT"):
        finish.throw(pytest.exit.Exception("interrupted by SIGINT", 2))
