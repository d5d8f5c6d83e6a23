"""Tracers (coverage, debuggers, profilers), paused while timing.

Coverage, profilers and debuggers are called for each line or call: a step of small operations
takes three times as long under pytest-cov.
"""

from __future__ import annotations

import bdb
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain, starmap
from typing import Any, Final, TypeVar

from gpubench_plugin.core.quality_flags import INSTRUMENTED
from gpubench_plugin.environment.system_facts import is_instrumented
from gpubench_plugin.environment.torch_use import imported_torch
from gpubench_plugin.measure.probes.interference import thread_times

_T = TypeVar("_T")

_MONITORING: Any = getattr(sys, "monitoring", None)
"""Since Python 3.12."""

_TOOLS: Final = range(6)
"""Tool ids of ``sys.monitoring``: six by PEP 669."""
_DEBUGGERS: Final = ("bdb", "pdb", "pydevd", "_pydevd", "debugpy")
"""Prefixes of debugger modules, which are left active."""

# CPU time of a thread that only waits, as a timer or a watchdog does.
_IDLE_NS: Final = 1_000_000


class Tracers:
    """Tracers of this thread and of ``sys.monitoring``, which :meth:`paused` disables.

    `were_paused` tells whether there were any. Debuggers and profilers that are no function stay
    active. `flags` has ``instrumented`` then, if an existing thread works traced during the call,
    or if the interpreter itself or torch's backward pass is instrumented.
    """

    def __init__(self) -> None:
        torch = imported_torch()
        # Autograd then keeps a traceback of each operation and looks for NaN in each gradient.
        detects_anomalies = torch is not None and torch.is_anomaly_enabled()
        is_flagged = is_instrumented() or detects_anomalies
        self.flags: tuple[str, ...] = (INSTRUMENTED,) if is_flagged else ()
        self.were_paused = False

    def paused(self, call: Callable[[], _T]) -> _T:
        """Call `call` without tracers, then restore them, unless it has set others."""
        tracer, profiler = self._pausable(sys.gettrace()), self._pausable(sys.getprofile())
        with self._threads_untraced(), self._monitoring_paused():
            # In this frame, not in a callee: a tracer that sees a call must see its return, or
            # coverage's call stack is out of step.
            if profiler is not None:
                sys.setprofile(None)
            if tracer is not None:
                sys.settrace(None)
            try:
                return call()
            finally:
                if tracer is not None and sys.gettrace() is None:
                    sys.settrace(tracer)
                if profiler is not None and sys.getprofile() is None:
                    sys.setprofile(profiler)

    def _pausable(self, tracer: Any) -> Any:
        """Return the `tracer` if it can be paused and restored safely; records the consequences."""
        if tracer is None:
            return None
        if not callable(tracer) or _is_debugger(tracer):
            self.flags = (INSTRUMENTED,)
            return None
        self.were_paused = True
        return tracer

    @contextmanager
    def _threads_untraced(self) -> Iterator[None]:
        """Keep threads started by the call untraced; flag those that work, which are not."""
        tracer, profiler = threading.gettrace(), threading.getprofile()
        if tracer is None and profiler is None:
            yield
            return
        before_ns = _run_times_ns()
        threading.settrace(tracer if _is_debugger(tracer) else None)
        threading.setprofile(None)
        try:
            yield
        finally:
            threading.settrace(tracer)
            threading.setprofile(profiler)
            worked_ns = (ns - before_ns.get(thread, ns) for thread, ns in _run_times_ns().items())
            if any(ns > _IDLE_NS for ns in worked_ns):
                self.flags = (INSTRUMENTED,)

    @contextmanager
    def _monitoring_paused(self) -> Iterator[None]:
        """Disable monitoring tools, for all code and for selected code."""
        monitoring = _MONITORING
        tools = [] if monitoring is None else [t for t in _TOOLS if monitoring.get_tool(t)]
        if tools and tools[0] == monitoring.DEBUGGER_ID:
            self.flags = (INSTRUMENTED,)
            tools = tools[1:]
        if not tools:
            yield
            return
        pairs = [(tool, event) for tool in tools for event in _events(monitoring)]
        events_by_tool = {tool: monitoring.get_events(tool) for tool in tools}
        # By iterators in C: a monitored call without its return, or the reverse, would leave
        # cProfile's call stack out of step.
        removing = starmap(monitoring.register_callback, [(*pair, None) for pair in pairs])
        disabling = starmap(monitoring.set_events, [(tool, 0) for tool in tools])
        old_callbacks = list(zip(pairs, removing, strict=True))
        deque(disabling, maxlen=0)
        registered = [(*pair, callback) for pair, callback in old_callbacks if callback is not None]
        self.were_paused |= bool(registered) or any(events_by_tool.values())
        try:
            yield
        finally:
            registering = starmap(monitoring.register_callback, registered)
            enabling = starmap(monitoring.set_events, events_by_tool.items())
            deque(chain(registering, enabling), maxlen=0)


def _run_times_ns() -> dict[str, int]:
    """CPU time of other Python threads in nanoseconds."""
    own, times = threading.current_thread(), thread_times()
    others = (str(thread.native_id) for thread in threading.enumerate() if thread is not own)
    return {thread: times[thread].ran_ns for thread in others if thread in times}


def _events(monitoring: Any) -> list[int]:
    """All event kinds; ``BRANCH`` is an alias of two others since Python 3.14."""
    names = {name: event for name, event in vars(monitoring.events).items() if name.isupper()}
    if "BRANCH_LEFT" in names:
        names.pop("BRANCH", None)
    return sorted({event for event in names.values() if event > 0 and event & (event - 1) == 0})


def _is_debugger(tracer: Any) -> bool:
    owner = getattr(tracer, "__self__", tracer)
    module = getattr(tracer, "__module__", None) or type(tracer).__module__
    return isinstance(owner, bdb.Bdb) or str(module).startswith(_DEBUGGERS)
