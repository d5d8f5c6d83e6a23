"""Requests to end a session: SIGTERM, SIGHUP and Ctrl-C, none of which is lost.

A request interrupts the main thread by an exception, which the code of a test may swallow: a weak
reference's callback, a compiler that wraps whatever it meets, an ``except`` for everything. So the
request lasts, and no phase of a test that ends after it is reported. A main thread that does not
end its phase, or stays in C, is given some seconds. If it keeps the interpreter's lock there, the
process is killed some seconds later.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from types import FrameType, TracebackType
from typing import Any, Final

import pytest

from gpubench_plugin.core.errors import with_causes
from gpubench_plugin.launchers.forced_exit import force_exit
from gpubench_plugin.launchers.in_process import InProcessLauncher, has_debugger
from gpubench_plugin.system import lock_guard
from gpubench_plugin.system.helper_threads import HelperThread
from gpubench_plugin.system.watchdog import STDERR, Watchdog

GRACE_S: Final = 10.0
"""For the main thread; with the end of the session within the 30 s that schedulers wait."""
LOCK_GRACE_S: Final = 20.0
"""For a thread that holds the interpreter's lock: results are written if it lets go before."""
_DEFAULTS: Final[dict[signal.Signals, Any]] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}


class SignalInterrupt:
    """Ends a session on SIGTERM or SIGHUP as on Ctrl-C, writing all results once.

    Such signals often come twice: ``timeout`` of coreutils signals the process and its group, and
    people press Ctrl-C again. While pytest ends, a second one would cost the exit code and the
    run's status. For sessions that write results. Handlers of others, and ignored signals
    (``nohup``), stay; Ctrl-C is a debugger's where there is one.

    The handlers are set at once, in the main thread.
    """

    def __init__(self, session: pytest.Session, launcher: InProcessLauncher):
        self._session = session
        self._launcher = launcher
        self._requested = ""  # name of the first signal
        self._is_held = self._is_ending = self._is_finishing_session = False
        self._is_debugged = has_debugger(session.config)
        self._grace = Watchdog(self._end_unresponsive)
        self._first = threading.Lock()
        self._wakeup_fd = -1
        self._own_signals: Sequence[signal.Signals] = ()
        if _is_main_thread():
            self._own_signals = [n for n, d in _DEFAULTS.items() if signal.getsignal(n) is d]
        for number in self._own_signals:
            signal.signal(number, self._handle)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        """Let signals interrupt the tests; a later one waits for its place."""
        with self._noticing() if self._own_signals else nullcontext():
            return (yield from self._holding(False))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Notice signals while a test runs C code, in which Python calls no handler."""
        if self._is_debugged or not self._own_signals:
            return (yield)
        for number in self._own_signals:
            if signal.getsignal(number) == _DEFAULTS[number]:  # an event loop has left it so
                signal.signal(number, self._handle)
        previous = signal.set_wakeup_fd(self._wakeup_fd, warn_on_full_buffer=False)
        if previous != -1:  # of an event loop, say, that lives longer than a test
            signal.set_wakeup_fd(previous)
        try:
            return (yield)
        finally:
            if (current := signal.set_wakeup_fd(-1)) != self._wakeup_fd:
                signal.set_wakeup_fd(current)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(self) -> Generator[None, object, object]:
        """Report no outcome after a request, and the one before it to its end."""
        return (yield from self._holding(True))

    def pytest_enter_pdb(self) -> None:
        """Leave Ctrl-C to the debugger, and the user all the time."""
        self._is_debugged = True

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Ignore further signals while pytest handles an interrupt."""
        self._is_ending = self._is_held = True
        for error in with_causes([excinfo.value]):
            _drop_unnumbered(error.__traceback__)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self) -> Generator[None, object, object]:
        """Let nothing disturb the writing of the results, nor a request after it be lost."""
        self._is_finishing_session = self._is_held = True
        self._grace.cancel()
        result = yield
        self._end_if_requested()
        return result

    @pytest.hookimpl(tryfirst=True, specname="pytest_sessionfinish")  # within the recording's
    def pytest_release_signals(self) -> None:
        """Allow signals again: after the results, fixture teardown may hang."""
        self._is_held = False
        self._end_if_requested()

    def pytest_unconfigure(self) -> None:
        """Restore the default handlers."""
        self._grace.cancel()
        _restore_defaults(self._own_signals)

    def _holding(self, is_held: bool) -> Generator[None, object, object]:
        """Hold signals, or let them through, around other hooks; a request ends the session."""
        self._end_if_requested()
        self._is_held = is_held
        try:
            return (yield)
        finally:
            self._is_held = not is_held
            self._end_if_requested()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        __tracebackhide__ = True  # for pytest to show the interrupted line
        was_requested = bool(self._requested)
        self._request(number)
        if self._is_held or self._launcher.is_expected(number):
            return
        if number != signal.SIGINT and was_requested and self._is_finishing_session:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self._interrupt(signal.Signals(number).name)  # again, if a test has caught the first

    @contextmanager
    def _noticing(self) -> Iterator[None]:
        """Notice signals in a thread, and where no thread comes to run, in another process."""
        received, wakeup = socket.socketpair()
        with suppress(OSError):
            lock_guard.start(received, self._own_signals, grace_s=LOCK_GRACE_S, stderr=STDERR)
        HelperThread("gpubench-signals", self._notice, received).start()
        with wakeup:  # whose end is that of both
            wakeup.setblocking(False)
            self._wakeup_fd = wakeup.fileno()
            yield

    def _notice(self, received: socket.socket) -> None:
        with received:
            # Between the two it has the lock again.
            while select.select([received], [], []) and (data := received.recv(1)):
                if data[0] in self._own_signals and signal.getsignal(data[0]) == self._handle:
                    self._request(data[0])

    def _request(self, number: int) -> None:
        """Keep the first request; called in the handler and beside it, so it waits for no lock."""
        if (self._is_debugged and number == signal.SIGINT) or self._launcher.is_expected(number):
            return
        if not self._first.acquire(blocking=False):
            return
        self._launcher.is_interrupted = True
        self._requested = signal.Signals(number).name
        if not (self._is_debugged or self._is_finishing_session):
            self._grace.start(GRACE_S)

    def _end_unresponsive(self) -> None:
        """End the session from the watchdog's thread."""
        message = f"interrupted by {self._requested}; nothing reacted to it within {GRACE_S:g} s"
        force_exit(self._session, (), message=message, code=pytest.ExitCode.INTERRUPTED)

    def _end_if_requested(self) -> None:
        """End the session if a request has not, as it should have; only in the main thread."""
        is_done = self._is_ending or isinstance(sys.exception(), KeyboardInterrupt)
        if self._requested and _is_main_thread() and not is_done:
            self._interrupt(self._requested)

    def _interrupt(self, name: str) -> None:
        __tracebackhide__ = True
        if self._is_finishing_session:  # where pytest handles nothing else
            pytest.exit(f"interrupted by {name}", pytest.ExitCode.INTERRUPTED)
        # No ``pytest.exit``, whose exception an ``except Exception`` catches.
        raise KeyboardInterrupt(f"interrupted by {name}")


def _drop_unnumbered(entry: TracebackType | None) -> None:
    """Drop frames interrupted at an instruction without a line, which pytest cannot show."""
    while entry is not None and (inner := entry.tb_next) is not None:
        if inner.tb_lineno:
            entry = inner
        else:
            entry.tb_next = inner.tb_next


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _restore_defaults(numbers: Iterable[signal.Signals]) -> None:
    for number in numbers:
        if isinstance(getattr(signal.getsignal(number), "__self__", None), SignalInterrupt):
            signal.signal(number, _DEFAULTS[number])


_mask = threading.local()


def _before_fork() -> None:
    """Let no signal reach the forked process while it still has the session's handlers."""
    _mask.before = signal.pthread_sigmask(signal.SIG_BLOCK, _DEFAULTS)


def _after_fork() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _mask.before)


def _leave_session() -> None:
    _restore_defaults(_DEFAULTS)
    signal.set_wakeup_fd(-1)
    _after_fork()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_leave_session)
