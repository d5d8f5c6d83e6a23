"""Exit on SIGINT, SIGTERM and SIGHUP, and on the death of other ranks."""

from __future__ import annotations

import os
import selectors
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import Final

from gpubench_plugin.launchers.deadlines import DEATH_SETTLE_S, call_or_exit
from gpubench_plugin.launchers.forced_exit import EXIT_GRACE_S
from gpubench_plugin.system.helper_threads import HelperThread
from gpubench_plugin.system.signals import ENDING, STOPS

GRACE_S: Final = 1.0  # a main thread that has not handled Ctrl-C by then blocks in native code
_ALERT: Final = object()
_EXIT_STATUS: Final = 49  # field 52 of proc_pid_stat(5), counted from after the name


Deaths = dict[int, int | None]
"""Wait statuses by name of the process, None for one that was reaped elsewhere."""


class ExitWatcher:
    """Calls `end` from its own thread when this process may have to exit.

    Python runs signal handlers in the main thread, between two of its instructions: not while it
    waits in a collective. So a second thread blocks in the kernel beside it, until SIGTERM or
    SIGHUP, a Ctrl-C that the main thread does not handle, the death of a process given to
    :meth:`watch`, or an alert (:meth:`accept_alerts`). After a signal the main thread blocks; other
    reasons `end` may ignore. An error in `end` ends the process. Ignored signals (``nohup``) stay
    ignored. Create it in the main thread; :meth:`close` restores the handlers.

    `end` is called with the signal, the deaths, and whether there was an alert.
    """

    def __init__(self, end: Callable[[signal.Signals | None, Deaths, bool], object]):
        self._end = end
        self._is_finishing = False
        self._handled = threading.Event()
        self._deaths: Deaths = {}
        self._was_alerted = False
        self._selector = selectors.DefaultSelector()
        self._read_fd, self._write_fd = os.pipe()
        os.set_blocking(self._write_fd, False)
        self._selector.register(self._read_fd, selectors.EVENT_READ)
        handled_signals = [n for n in ENDING if signal.getsignal(n) is not signal.SIG_IGN]
        self._previous = {number: signal.signal(number, self._handle) for number in handled_signals}
        self._previous_wakeup = signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        self._thread = HelperThread("gpubench-termination", call_or_exit, self._listen)
        self._thread.start()

    def watch(self, processes: Mapping[int, int]) -> None:
        """Also watch for the deaths of `processes`, pid by name (Linux 5.3 or newer)."""
        for name, pid in processes.items():
            with suppress(AttributeError, OSError):  # an older system, a sandbox, or it has ended
                self._selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (name, pid))

    def accept_alerts(self, pipe: Path) -> None:
        """Accept alerts from other processes through the named `pipe`."""
        # Also open for writing, so that it has no end of file when a writer closes it.
        descriptor = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
        self._selector.register(descriptor, selectors.EVENT_READ, _ALERT)

    def finish(self) -> None:
        """Let the main thread end the session from now on; exits after a grace period."""
        self._is_finishing = True

    def close(self) -> None:
        """Stop listening; call in the main thread; idempotent."""
        if self._read_fd < 0:
            return
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._previous_wakeup)
        os.close(self._write_fd)  # the end of its pipe ends the thread
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            os.close(key.fd)
        self._selector.close()
        self._read_fd = -1

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """Signal handler in the main thread, possibly delayed by native code."""
        __tracebackhide__ = True  # for pytest to show the interrupted line
        self._handled.set()
        if number in STOPS and not self._is_finishing:
            threading.Event().wait()  # for ever: the other thread ends the process
        previous = self._previous[signal.Signals(number)]
        if number == signal.SIGINT and callable(previous):
            previous(number, frame)

    def _listen(self) -> None:
        deadline: float | None = None
        while True:
            remaining_s = None if deadline is None else max(0.0, deadline - monotonic())
            events = self._selector.select(remaining_s)
            if not events and deadline is not None:
                if self._is_finishing:
                    os._exit(1)
                self._end(signal.SIGINT, self._deaths, self._was_alerted)
            signals = self._read_events(events)
            if signals is None:
                return
            if self._is_finishing:
                if signals.intersection(ENDING):
                    deadline = deadline or monotonic() + EXIT_GRACE_S
            elif signals.intersection(STOPS) or self._deaths or self._was_alerted:
                self._collect_deaths(signals)
                number = next((n for n in STOPS if n in signals), None)
                self._end(number, self._deaths, self._was_alerted)
                self._was_alerted, self._deaths = False, {}
            elif signal.SIGINT in signals:
                if not self._handled.wait(GRACE_S):
                    self._end(signal.SIGINT, self._deaths, self._was_alerted)
                deadline = monotonic() + EXIT_GRACE_S

    def _read_events(self, events: Sequence[tuple[selectors.SelectorKey, int]]) -> set[int] | None:
        """Signals received; deaths are recorded. None at the end."""
        signals: set[int] = set()
        for key, _ in events:
            if key.data is None:
                data = os.read(self._read_fd, 64)
                if not data:
                    return None
                signals |= set(data)
            elif key.data is _ALERT:
                self._was_alerted = bool(os.read(key.fd, 64))
            else:
                name, pid = key.data
                self._deaths[name] = _exit_status(pid)
                self._selector.unregister(key.fd)
                os.close(key.fd)
        return signals

    def _collect_deaths(self, signals: set[int]) -> None:
        """Wait briefly for related deaths, and add to `signals` those received meanwhile.

        Deaths by a signal that this process got, too, are no cause, unless they came first.
        """
        first = {} if signals.intersection(STOPS) else dict(self._deaths)
        deadline = monotonic() + DEATH_SETTLE_S
        while (remaining_s := deadline - monotonic()) > 0:
            signals |= self._read_events(self._selector.select(remaining_s)) or set()
        others = {n: status for n, status in self._deaths.items() if status not in signals}
        self._deaths = {**others, **first}


def _exit_status(pid: int) -> int | None:
    """Wait status of an ended process, until it is reaped."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return int(text.rpartition(")")[2].split()[_EXIT_STATUS])
