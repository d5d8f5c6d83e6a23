"""Tracers (coverage, debuggers, profilers), paused while timing.

Coverage, profilers and debuggers are called for each line or call: a step of small operations
takes three times as long under pytest-cov.
"""

from __future__ import annotations

import bdb
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain, starmap
from pathlib import Path
from typing import Any, Final, TypeVar

from gpubench_plugin.environment import is_instrumented
from gpubench_plugin.flags import INSTRUMENTED

_T = TypeVar("_T")

_MONITORING: Final = getattr(sys, "monitoring", None)
"""Python's; 3.11 has none."""

_TOOLS: Final = range(6)
"""Identifiers of tools; ``sys.monitoring`` has so many."""
_DEBUGGERS: Final = ("bdb", "pdb", "pydevd", "_pydevd", "debugpy")
"""Beginnings of the modules of debuggers: somebody wants to stop in the step."""


_IDLE_S: Final = 0.001
"""A thread that needs no more processor time only waits: a timer, or a watchdog that looked."""


class Tracers:
    """Tracers of this thread and of ``sys.monitoring``, which :meth:`paused` disables.

    `were_paused` says whether there were any. A debugger is left alone, and so is what could not
    be put back exactly; then, where a thread that was there before works in the call and goes on
    being traced, or where the interpreter itself is no plain one, `flags` holds ``instrumented``.
    """

    def __init__(self, monitoring: Any = _MONITORING) -> None:
        self.flags: tuple[str, ...] = (INSTRUMENTED,) if is_instrumented() else ()
        self.were_paused = False
        self._monitoring = monitoring

    def paused(self, call: Callable[[], _T]) -> _T:
        """Call `call` without tracers and restore them, also on exceptions.

        But what `call` itself has begun, a debugger say, goes on.
        """
        tracer: Any = sys.gettrace()
        profiler: Any = sys.getprofile()
        keeps_tracer = tracer is not None and not self._can_pause(tracer)
        keeps_profiler = profiler is not None and not self._can_pause(profiler)
        with self._threads_untraced(), self._monitoring_paused():
            # In this frame, not in one below: a tracer that is told of the beginning of a call is
            # to be told of its end, too. coverage's book of calls would be out of step.
            if profiler is not None and not keeps_profiler:
                sys.setprofile(None)
            if tracer is not None and not keeps_tracer:
                sys.settrace(None)
            try:
                return call()
            finally:
                # One that was left alone and is gone now, a debugger say, was dismissed.
                if tracer is not None and not keeps_tracer and sys.gettrace() is None:
                    sys.settrace(tracer)
                if profiler is not None and not keeps_profiler and sys.getprofile() is None:
                    if callable(profiler):
                        sys.setprofile(profiler)
                    else:
                        profiler.enable()  # cProfile's, which is no function, with its own settings

    def _can_pause(self, tracer: Any) -> bool:
        """Whether the tracer can be paused and restored safely; records the consequences."""
        restorable = callable(tracer) or hasattr(tracer, "enable")
        if not restorable or _is_debugger(tracer):
            self.flags = (INSTRUMENTED,)
            return False
        self.were_paused = True
        return True

    @contextmanager
    def _threads_untraced(self) -> Iterator[None]:
        """Keep threads started by the call untraced; threads already working are untraced, too."""
        tracer, profiler = threading.gettrace(), threading.getprofile()
        busy_before = _busy_s() if tracer is not None or profiler is not None else {}
        if tracer is not None and not _is_debugger(tracer):
            threading.settrace(None)
        if profiler is not None:
            threading.setprofile(None)
        try:
            yield
        finally:
            if tracer is not None:
                threading.settrace(tracer)
            if profiler is not None:
                threading.setprofile(profiler)
            if busy_before and any(
                busy_s - busy_before.get(thread, busy_s) > _IDLE_S
                for thread, busy_s in _busy_s().items()
            ):
                self.flags = (INSTRUMENTED,)

    @contextmanager
    def _monitoring_paused(self) -> Iterator[None]:
        """Disable monitoring tools, for all code and for selected code."""
        monitoring = self._monitoring
        tools = [] if monitoring is None else [t for t in _TOOLS if monitoring.get_tool(t)]
        if tools and tools[0] == monitoring.DEBUGGER_ID:
            self.flags = (INSTRUMENTED,)
            tools = tools[1:]
        pairs = [(tool, event) for tool in tools for event in _events(monitoring)]
        events_by_tool = {tool: monitoring.get_events(tool) for tool in tools}
        if not tools:
            yield
            return
        # By iterators: a call that is told of and whose end is not, or the reverse, would leave
        # cProfile's book of calls out of step.
        callbacks = starmap(monitoring.register_callback, [(*pair, None) for pair in pairs])
        disabling = starmap(monitoring.set_events, [(tool, 0) for tool in tools])
        old_callbacks = [*zip(pairs, callbacks, strict=True)]
        for _ in disabling:
            pass
        self.were_paused |= any(events_by_tool.values()) or any(
            callback for _, callback in old_callbacks
        )
        try:
            yield
        finally:
            registered = [
                (*pair, callback) for pair, callback in old_callbacks if callback is not None
            ]
            restored = chain(
                starmap(monitoring.register_callback, registered),
                starmap(monitoring.set_events, events_by_tool.items()),
            )
            for _ in restored:
                pass


def _busy_s() -> dict[int, float]:
    """CPU time of other Python threads in seconds, where Linux reports it.

    The first number of ``/proc/<pid>/task/<thread>/schedstat``, in nanoseconds: see
    Documentation/scheduler/sched-stats.rst of Linux.
    """
    busy_s = {}
    for thread in threading.enumerate():
        if thread.native_id is None or thread is threading.current_thread():
            continue
        with suppress(OSError, ValueError):
            times = Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text("ascii")
            busy_s[thread.native_id] = int(times.split()[0]) * 1e-9
    return busy_s


def _events(monitoring: Any) -> list[int]:
    """All event kinds; ``BRANCH``, since 3.14, is an alias of two others."""
    names = {name: event for name, event in vars(monitoring.events).items() if name.isupper()}
    if "BRANCH_LEFT" in names:
        names.pop("BRANCH", None)
    return sorted({event for event in names.values() if event > 0 and event & (event - 1) == 0})


def _is_debugger(tracer: Any) -> bool:
    owner = getattr(tracer, "__self__", tracer)
    module = getattr(tracer, "__module__", None) or type(tracer).__module__
    return isinstance(owner, bdb.Bdb) or str(module).startswith(_DEBUGGERS)
