"""Tracers are paused while something is timed, and are as they were afterwards."""

from __future__ import annotations

import bdb
import cProfile
import json
import os
import pstats
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from gpubench_plugin.measure.tracers import Tracers

if TYPE_CHECKING:
    from pathlib import Path

Events = list[tuple[str, str]]


def step() -> int:
    """What is timed."""
    return 5


def before() -> None:
    """What runs before it."""


def after() -> None:
    """What runs after it."""


def timed(call: Callable[[], Any] = step) -> Tracers:
    """The tracers, after they were paused between two calls."""
    tracers = Tracers()
    before()
    assert tracers.paused(call) == 5
    after()
    return tracers


@contextmanager
def followed(get: Callable[[], Any], set_to: Callable[[Any], None]) -> Iterator[Events]:
    """The events of this file of which a function is told; it must be in its place at the end."""
    events: Events = []

    def follow(frame: Any, event: str, argument: object) -> Any:
        if frame.f_code.co_filename == __file__:
            events.append((frame.f_code.co_name, event))
        return follow

    usual = get()
    set_to(follow)
    try:
        yield events
        assert get() is follow
    finally:
        set_to(usual)


WAYS = pytest.mark.parametrize(
    ("get", "set_to"),
    [(sys.gettrace, sys.settrace), (sys.getprofile, sys.setprofile)],
    ids=["settrace", "setprofile"],
)


@WAYS
def test_step_is_not_followed_and_all_else_is(get: Any, set_to: Any) -> None:
    """Not a single event comes from it; every call that was told of is told to have ended."""
    with followed(get, set_to) as events:
        tracers = timed()
    calls = [(name, event) for name, event in events if event in {"call", "return"}]
    assert [pair for pair in calls if pair[0] in {"timed", "before", "after", "step"}] == [
        ("timed", "call"),
        ("before", "call"),
        ("before", "return"),
        ("after", "call"),
        ("after", "return"),
        ("timed", "return"),
    ]
    assert (tracers.were_paused, tracers.flags) == (True, ())


@WAYS
def test_tracer_is_back_after_an_error(get: Any, set_to: Any) -> None:
    """What failed is followed from there on."""

    def fail() -> None:
        raise ValueError("no luck")

    with followed(get, set_to) as events:
        with pytest.raises(ValueError, match="no luck"):
            Tracers().paused(fail)
        after()
    assert ("after", "call") in events
    assert ("fail", "call") not in events


def test_thread_of_a_step_is_not_followed() -> None:
    """One that is started within it; one that is started after it is."""

    def threaded(target: Callable[[], object]) -> int:
        thread = threading.Thread(target=target)
        thread.start()
        thread.join()
        return 5

    for get, set_to in (
        (threading.gettrace, threading.settrace),
        (threading.getprofile, threading.setprofile),
    ):
        with followed(get, set_to) as events:
            timed(lambda: threaded(before))
            threaded(after)
        assert [pair for pair in events if pair[1] == "call"] == [("after", "call")]


@pytest.mark.skipif(hasattr(sys, "monitoring"), reason="a tool of sys.monitoring since Python 3.12")
def test_profile_of_a_session_goes_on_and_is_flagged() -> None:
    """That of cProfile is no function: its calls are in order, and the step's among them."""
    profiler = cProfile.Profile()
    profiler.enable()
    tracers = timed()
    profiler.disable()
    calls = {key[2]: counts[0] for key, counts in pstats.Stats(profiler).stats.items()}  # type: ignore[attr-defined] # not declared
    assert [calls[name] for name in ("timed", "before", "after", "step")] == [1] * 4
    assert tracers.flags == ("instrumented",)


def test_what_the_step_begins_goes_on() -> None:
    """A debugger that somebody enters in the step is not ended behind it."""

    def other(frame: Any, event: str, argument: object) -> Any:
        return None

    def enter() -> Any:
        sys.settrace(other)

    with followed(sys.gettrace, sys.settrace):
        follow = sys.gettrace()
        Tracers().paused(enter)
        left = sys.gettrace()
        sys.settrace(follow)
    assert left is other


@pytest.mark.parametrize("dismissed", [False, True])
def test_debugger_is_left_alone_and_flagged(dismissed: bool) -> None:
    """Whoever has set a breakpoint in the step stops there; nobody puts back what was dismissed."""
    debugger = bdb.Bdb()
    debugger.reset()
    usual = sys.gettrace()
    sys.settrace(debugger.trace_dispatch)
    try:
        tracers = Tracers()
        tracer = tracers.paused((lambda: sys.settrace(None)) if dismissed else sys.gettrace)
        left = sys.gettrace()
    finally:
        sys.settrace(usual)
    assert tracers.flags == ("instrumented",)
    assert (tracer, left) == ((None, None) if dismissed else (debugger.trace_dispatch,) * 2)


@contextmanager
def allocations_traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.parametrize(
    "mode", [allocations_traced, partial(torch.autograd.set_detect_anomaly, True)]
)
def test_mode_that_cannot_be_paused_is_flagged(mode: Callable[[], Any]) -> None:
    """Traced allocations would be lost, and anomaly mode is the user's to switch off."""
    assert Tracers().flags == ()
    with mode():
        assert Tracers().flags == ("instrumented",)
    assert Tracers().flags == ()


class Monitoring:
    """``sys.monitoring`` of Python 3.14, as far as it is used."""

    DEBUGGER_ID = 0
    events = SimpleNamespace(
        NO_EVENTS=0, PY_START=1, LINE=32, BRANCH_LEFT=256, BRANCH_RIGHT=512, BRANCH=1024
    )

    def __init__(self, **tools: int) -> None:
        self.tools = {int(name[1:]): events for name, events in tools.items()}
        self.callbacks: dict[tuple[int, int], Any] = {
            (tool, event): f"callback of {tool} for {event}"
            for tool in self.tools
            for event in (1, 32, 256)
        }

    def get_tool(self, tool: int) -> str | None:
        return f"tool {tool}" if tool in self.tools else None

    def get_events(self, tool: int) -> int:
        return self.tools[tool]

    def set_events(self, tool: int, events: int) -> None:
        self.tools[tool] = events

    def register_callback(self, tool: int, event: int, callback: Any) -> Any:
        assert event != self.events.BRANCH
        usual = self.callbacks.pop((tool, event), None)
        if callback is not None:
            self.callbacks[tool, event] = callback
        return usual


def test_tools_of_monitoring_are_silent_and_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether they follow all code or some that they have chosen, which no one can ask for."""
    monitoring, untouched = Monitoring(t1=33, t3=0), Monitoring(t1=33, t3=0)
    monkeypatch.setattr("gpubench_plugin.measure.tracers._MONITORING", monitoring)
    tracers = Tracers()
    silent = tracers.paused(lambda: (dict(monitoring.tools), dict(monitoring.callbacks)))
    assert silent == ({1: 0, 3: 0}, {})
    assert vars(monitoring) == vars(untouched)
    assert (tracers.were_paused, tracers.flags) == (True, ())


def test_debugger_among_the_tools_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that is a trace function."""
    monitoring = Monitoring(t0=33, t1=1)
    monkeypatch.setattr("gpubench_plugin.measure.tracers._MONITORING", monitoring)
    tracers = Tracers()
    assert tracers.paused(lambda: dict(monitoring.tools)) == {0: 33, 1: 0}
    assert tracers.flags == ("instrumented",)


@pytest.mark.skipif(not hasattr(sys, "monitoring"), reason="Python 3.12 or newer")
def test_pythons_monitoring_is_silent_while_something_is_timed() -> None:
    """A tool that follows this step's lines hears of none, and of all of them later."""
    monitoring: Any = getattr(sys, "monitoring")  # noqa: B009 # unknown to 3.11's types
    lines: list[int] = []
    monitoring.use_tool_id(4, "a test")
    try:
        event = monitoring.events.LINE
        monitoring.register_callback(4, event, lambda code, line: lines.append(line))
        monitoring.set_local_events(4, step.__code__, event)
        timed()
        assert lines == []
        step()
        assert len(lines) > 0
    finally:
        monitoring.set_local_events(4, step.__code__, 0)
        monitoring.register_callback(4, event, None)
        monitoring.free_tool_id(4)


SCRIPT = """\
from gpubench_plugin.measure.tracers import Tracers

def step():
    ran = 1
    return ran

def measured():
    tracers = Tracers()
    tracers.paused(step)
    return tracers

def later():
    return 2

tracers = measured()
assert tracers.were_paused
later()
"""


@pytest.mark.slow
def test_coverage_misses_the_step_and_nothing_else(tmp_path: Path) -> None:
    """Real coverage: its book of files and lines is right behind the pause."""
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / ".coveragerc").write_text("[run]\nbranch = true\n")
    # Where it measures these tests, it would merge and remove what it has measured of them so far.
    own = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    for command in (["run", "script.py"], ["json", "-o", "covered.json", "--include=script.py"]):
        subprocess.run(
            [sys.executable, "-m", "coverage", *command, "--rcfile=.coveragerc"],
            cwd=tmp_path,
            env=own,
            check=True,
            capture_output=True,
        )
    (file,) = json.loads((tmp_path / "covered.json").read_text())["files"].values()
    assert file["missing_lines"] == [4, 5]
    assert file["missing_branches"] == []


@pytest.mark.parametrize(("works", "flags"), [(True, ("instrumented",)), (False, ())])
def test_thread_that_works_for_a_step_goes_on_being_traced(
    works: bool, flags: tuple[str, ...]
) -> None:
    """One that was started before the step keeps its tracer: what it does there is flagged."""

    def busy() -> None:
        end = time.thread_time() + 0.02
        while time.thread_time() < end:
            pass

    with followed(threading.gettrace, threading.settrace), ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        tracers = Tracers()
        tracers.paused(lambda: works and pool.submit(busy).result())
    assert tracers.flags == flags
