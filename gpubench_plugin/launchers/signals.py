"""Exit on SIGINT, SIGTERM and SIGHUP, and on the death of the parent or of other ranks."""

from __future__ import annotations

import ctypes
import fcntl
import os
import selectors
import signal
import struct
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import Any, Final, NoReturn

import pytest

from gpubench_plugin.environment import process_identity
from gpubench_plugin.environment.helper_threads import HelperThread
from gpubench_plugin.launchers.watchdog import call_or_exit

GRACE_S: Final = 1.0
"""A main thread that has not handled Ctrl-C by then is taken to block in native code; not
measured."""
EXIT_GRACE_S: Final = 20.0
"""For the end of a session, within the 30 s after which torch.distributed.elastic kills ranks."""
ORPHAN_GRACE_S: Final = 1.5
"""The same after the parent's death, when orphans should not linger; not measured."""
DEATH_SETTLE_S: Final = 0.05
"""The first death noticed need not be the first: peers fail within 0.05 s of it (gloo, 2 cores)."""
_ALERT: Final = object()
_STOPS: Final = (signal.SIGTERM, signal.SIGHUP)
"""Signals of a scheduler and of a closed terminal; torchrun passes both on to its ranks."""
_ENDING: Final = (*_STOPS, signal.SIGINT)
_PIDFD_INFO_EXIT: Final = 1 << 3
_PIDFD_GET_INFO: Final = 3 << 30 | 64 << 16 | 0xFF << 8 | 11


@dataclass(frozen=True, kw_only=True)
class ExitRequest:
    """Reason for this process to exit: a signal, deaths of others, or an alert.

    `deaths` holds wait statuses by name, None for a process that was reaped elsewhere; `orphaned`
    means that the parent has died.
    """

    signal: signal.Signals | None = None
    deaths: Mapping[int, int | None] = field(default_factory=dict)
    alerted: bool = False
    orphaned: bool = False


class ExitWatcher:
    """Calls `end` from its own thread when this process may have to exit.

    Python runs signal handlers in the main thread, between two of its instructions: not while it
    waits in a collective. So a second thread blocks in the kernel beside it, until SIGTERM or
    SIGHUP, a Ctrl-C that the main thread does not handle, the death of a process given to
    :meth:`watch`, or an alert (:meth:`accept_alerts`). After a signal the main thread blocks; other
    requests `end` may ignore. An error in `end` ends the process. Ignored signals (``nohup``) stay
    ignored. Create it in the main thread; :meth:`close` restores the handlers.
    """

    def __init__(
        self,
        end: Callable[[ExitRequest], None],
        *,
        signals: Sequence[signal.Signals] = _ENDING,
    ):
        self._end = end
        self._parent = os.getppid()
        self._is_finishing = False
        self._handled = threading.Event()
        self._deaths: dict[int, int | None] = {}
        self._was_alerted = False
        self._selector = selectors.DefaultSelector()
        self._read_fd, self._write_fd = os.pipe()
        os.set_blocking(self._write_fd, False)
        self._selector.register(self._read_fd, selectors.EVENT_READ)
        handled_signals = [n for n in signals if signal.getsignal(n) is not signal.SIG_IGN]
        self._previous = {number: signal.signal(number, self._handle) for number in handled_signals}
        self._previous_wakeup = signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        self._thread = HelperThread("gpubench-termination", call_or_exit, self._listen)
        self._thread.start()

    def watch(self, processes: Mapping[int, int]) -> None:
        """Also watch for the deaths of `processes`, pid by name (Linux 5.3 or newer)."""
        if not hasattr(os, "pidfd_open"):
            return
        for name, pid in processes.items():
            try:
                descriptor = os.pidfd_open(pid)
            except ProcessLookupError:
                self._deaths[name] = None
                signal.raise_signal(signal.SIGTERM)
            except OSError:
                return
            else:
                self._selector.register(descriptor, selectors.EVENT_READ, (name, pid))

    def accept_alerts(self, pipe: Path) -> None:
        """Accept alerts from other processes through the named `pipe`."""
        # Also open for writing, so that it has no end of file when a writer closes it.
        descriptor = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
        self._selector.register(descriptor, selectors.EVENT_READ, _ALERT)

    def finish(self) -> None:
        """Let the main thread end the session from now on; exits after a grace period."""
        self._is_finishing = True

    def block_main_thread(self) -> None:
        """Block the main thread as soon as it runs Python code again."""
        os.kill(os.getpid(), signal.SIGTERM)

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
        if number in _STOPS and not self._is_finishing:
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
                self._end(self._exit_request(signal.SIGINT))
            signals = self._read_events(events)
            if signals is None:
                return
            if self._is_finishing:
                if signals.intersection(_ENDING):
                    grace_s = ORPHAN_GRACE_S if os.getppid() != self._parent else EXIT_GRACE_S
                    deadline = deadline or monotonic() + grace_s
            elif (
                (was_requested := bool(signals.intersection(_STOPS)))
                or self._deaths
                or self._was_alerted
            ):
                signals |= self._collect_deaths(was_requested=was_requested)
                self._end(self._exit_request(next((n for n in _STOPS if n in signals), None)))
                self._was_alerted, self._deaths = False, {}
            elif signal.SIGINT in signals:
                if not self._handled.wait(GRACE_S):
                    self._end(self._exit_request(signal.SIGINT))
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
                self._deaths[name] = _exit_status(pid, key.fd)
                self._selector.unregister(key.fd)
                os.close(key.fd)
        return signals

    def _collect_deaths(self, *, was_requested: bool) -> set[int]:
        """Wait briefly for related deaths; return signals received meanwhile.

        With `was_requested`, all ranks got the signal, and deaths by it are no cause.
        """
        first_deaths, signals = dict(self._deaths), set[int]()
        deadline = monotonic() + DEATH_SETTLE_S
        while (remaining_s := deadline - monotonic()) > 0:
            signals |= self._read_events(self._selector.select(remaining_s)) or set()
        causes = first_deaths if was_requested else self._deaths
        self._deaths = {
            name: status
            for name, status in causes.items()
            if status not in _STOPS or (name in first_deaths and not was_requested)
        }
        return signals

    def _exit_request(self, number: signal.Signals | None) -> ExitRequest:
        return ExitRequest(
            signal=number,
            deaths=dict(self._deaths),
            alerted=self._was_alerted,
            orphaned=os.getppid() != self._parent,
        )


def _exit_status(pid: int, descriptor: int) -> int | None:
    """Wait status of an ended process, if still available.

    Until the process is reaped ``/proc`` has it, then its pidfd `descriptor` (Linux 6.15 or newer).
    """
    fields = process_identity.stat_fields(pid)
    if fields is None:
        return _status_after_reaping(descriptor)
    return int(fields[process_identity.EXIT_STATUS])


def _status_after_reaping(descriptor: int) -> int | None:
    """``exit_code`` of ``struct pidfd_info`` from ``PIDFD_GET_INFO`` (<linux/pidfd.h>)."""
    info = bytearray(64)
    struct.pack_into("=Q", info, 0, _PIDFD_INFO_EXIT)
    try:
        fcntl.ioctl(descriptor, _PIDFD_GET_INFO, info)
    except OSError:
        return None
    (mask,) = struct.unpack_from("=Q", info, 0)
    (status,) = struct.unpack_from("=i", info, 60)
    return status if mask & _PIDFD_INFO_EXIT else None


_DEFAULTS: Final[dict[signal.Signals, Any]] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}


class SignalInterrupt:
    """Ends a session on SIGTERM or SIGHUP as on Ctrl-C, writing all results once.

    Such signals often come twice: ``timeout`` of coreutils signals the process and its group, and
    people press Ctrl-C again. While pytest ends, a second one would cost the exit code and the
    run's status. For launchers whose process writes results. Handlers of others, and ignored
    signals (``nohup``), stay.
    """

    _was_requested = _is_ending = _is_finishing_session = False
    _own_signals: Sequence[signal.Signals] = ()

    def handle_signals(self) -> None:
        """Set the handlers, if called in the main thread."""
        if threading.current_thread() is threading.main_thread():
            self._own_signals = [
                n for n, default in _DEFAULTS.items() if signal.getsignal(n) is default
            ]
        for number in self._own_signals:
            signal.signal(number, self._handle)

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self) -> None:
        """Ignore further signals while pytest handles an interrupt."""
        self._is_ending = True

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self) -> Generator[None, object, object]:
        """Allow signals again: after the results, fixture teardown may hang."""
        self._is_finishing_session = True
        return (yield)

    def pytest_unconfigure(self) -> None:
        """Restore the handlers."""
        for number in self._own_signals:
            signal.signal(number, _DEFAULTS[number])

    def _handle(self, number: int, frame: FrameType | None) -> None:
        __tracebackhide__ = True  # for pytest to show the interrupted line
        was_requested, self._was_requested = self._was_requested, True
        if self._is_ending and not self._is_finishing_session:
            return
        if number == signal.SIGINT and not self._is_finishing_session:
            raise KeyboardInterrupt  # again, if a test or a debugger has caught the first
        if number != signal.SIGINT and was_requested and self._is_finishing_session:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        pytest.exit(f"interrupted by {signal.Signals(number).name}", pytest.ExitCode.INTERRUPTED)


_PR_SET_PDEATHSIG: Final = 1
"""prctl(2), <linux/prctl.h>."""


def die_with_parent(death: signal.Signals = signal.SIGKILL, *, parent: int | None = None) -> None:
    """Let the kernel send `death` to this process when its `parent` ends (Linux).

    If `parent` has ended already, the signal is sent now.
    """
    if sys.platform != "linux":
        return
    expected = os.getppid() if parent is None else parent
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, death, 0, 0, 0)
    if os.getppid() != expected:
        os.kill(os.getpid(), death)


@contextmanager
def exit_on_signals() -> Iterator[None]:
    """Raise SystemExit on SIGTERM and SIGHUP, unless ignored, so that cleanup runs as on Ctrl-C."""

    def end(number: int, frame: FrameType | None) -> NoReturn:
        sys.exit(128 + number)  # as shells report a signal

    handled_signals = (n for n in _STOPS if signal.getsignal(n) is not signal.SIG_IGN)
    with _handled(end, *handled_signals):
        yield


@contextmanager
def signals_ignored() -> Iterator[None]:
    """Ignore further termination signals during cleanup."""
    with _handled(signal.SIG_IGN, *_ENDING):
        yield


@contextmanager
def signals_deferred() -> Iterator[None]:
    """Defer signals to the end of the block, so that a process being started is not lost."""
    received: list[int] = []
    try:
        with _handled(lambda number, _: received.append(number), *_ENDING):
            yield
    finally:
        for number in received[:1]:
            signal.raise_signal(number)


@contextmanager
def _handled(
    handler: Callable[[int, FrameType | None], Any] | signal.Handlers, *numbers: signal.Signals
) -> Iterator[None]:
    previous: dict[signal.Signals, Any] = {}
    with suppress(ValueError):  # not in the main thread, which alone handles signals
        for number in numbers:
            previous[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, previous_handler in previous.items():
            signal.signal(number, previous_handler)
