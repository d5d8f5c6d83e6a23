"""Signal handling: SIGINT, SIGTERM, SIGHUP, and the deaths of a parent or of other ranks."""

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

from gpubench_plugin.environment import HelperThread
from gpubench_plugin.launchers.watchdog import or_die

GRACE_S: Final = 1.0
"""How long the main thread may take to notice Ctrl-C before it is taken to be deep in C."""
FAREWELL_S: Final = 20.0
"""How long it may then take to end: torchrun waits 30 s before it kills."""
ORPHAN_S: Final = 1.5
"""The same when the process that started this one is gone: nobody waits any more."""
_CALL: Final = object()
_STOPS: Final = (signal.SIGTERM, signal.SIGHUP)
"""What a scheduler sends, and a terminal that is closed; torchrun passes either on to its ranks."""
_ENDING: Final = (*_STOPS, signal.SIGINT)
_PIDFD_INFO_EXIT: Final = 1 << 3
_PIDFD_GET_INFO: Final = 3 << 30 | 64 << 16 | 0xFF << 8 | 11
_SETTLE_S: Final = 0.05
"""The death that is noticed first need not be the first; others follow within this time."""


@dataclass(frozen=True, kw_only=True)
class Notice:
    """Why this process may have to end: a signal, the deaths of others, or because one called.

    `deaths` holds wait statuses by name; that of one which somebody else has reaped is None.
    `orphaned`: the process that started this one is gone.
    """

    signal: signal.Signals | None = None
    deaths: Mapping[int, int | None] = field(default_factory=dict)
    called: bool = False
    orphaned: bool = False


class Termination:
    """Calls `end` from a thread of its own when this process may have to end.

    Python runs a signal's handler in the main thread, and only between two of its instructions: not
    while it waits in a collective. So a second thread listens beside it, blocked in the kernel.

    That is on SIGTERM or SIGHUP, on a Ctrl-C that the main thread does not notice, on the death of
    one of the processes given to :meth:`watch`, and when :meth:`answer` gets something to read. The
    main thread stands still from these signals on; what else is told, `end` may leave at that. An
    error in `end` ends the process. A signal that is ignored, as ``nohup`` has it, stays so.
    To be made in the main thread. :meth:`close` puts the handlers back.
    """

    def __init__(
        self,
        end: Callable[[Notice], None],
        *,
        signals: Sequence[signal.Signals] = _ENDING,
    ):
        self._end = end
        self._parent = os.getppid()
        self._finishing = False
        self._noticed = threading.Event()
        self._deaths: dict[int, int | None] = {}
        self._called = False
        self._selector = selectors.DefaultSelector()
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._selector.register(self._read, selectors.EVENT_READ)
        heard = [n for n in signals if signal.getsignal(n) is not signal.SIG_IGN]
        self._previous = {number: signal.signal(number, self._handle) for number in heard}
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._thread = HelperThread("gpubench-termination", or_die, self._listen)
        self._thread.start()

    def watch(self, processes: Mapping[int, int]) -> None:
        """Notice the deaths of `processes` too, pid by name (Linux 5.3 or newer; else nothing)."""
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

    def answer(self, pipe: Path) -> None:
        """Let others call through `pipe`, a named one."""
        # Open for writing, too: so it has no end when a caller goes.
        descriptor = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
        self._selector.register(descriptor, selectors.EVENT_READ, _CALL)

    def finish(self) -> None:
        """From now on the main thread ends the session itself; it has some seconds once asked."""
        self._finishing = True

    def hold(self) -> None:
        """Have the main thread stand still as soon as it comes back to Python."""
        os.kill(os.getpid(), signal.SIGTERM)

    def close(self) -> None:
        """Listen no longer. In the main thread; a second time does nothing."""
        if self._read < 0:
            return
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)
        os.close(self._write)  # the end of its pipe ends the thread
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            os.close(key.fd)
        self._selector.close()
        self._read = -1

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """In the main thread, at once or when it comes back from C."""
        __tracebackhide__ = True  # pytest is to show what was interrupted
        self._noticed.set()
        if number in _STOPS and not self._finishing:
            threading.Event().wait()  # the other thread ends the process
        previous = self._previous[signal.Signals(number)]
        if number == signal.SIGINT and callable(previous):
            previous(number, frame)

    def _listen(self) -> None:
        deadline: float | None = None
        while True:
            left = None if deadline is None else max(0.0, deadline - monotonic())
            ready = self._selector.select(left)
            if not ready and deadline is not None:
                self._give_up()
            told = self._hear(ready)
            if told is None:
                return
            if self._finishing:
                if told.intersection(_ENDING):
                    patience = ORPHAN_S if os.getppid() != self._parent else FAREWELL_S
                    deadline = deadline or monotonic() + patience
            elif (asked := bool(told.intersection(_STOPS))) or self._deaths or self._called:
                told |= self._settle(asked=asked)
                self._end(self._notice(next((n for n in _STOPS if n in told), None)))
                self._called, self._deaths = False, {}
            elif signal.SIGINT in told:
                if not self._noticed.wait(GRACE_S):
                    self._end(self._notice(signal.SIGINT))
                deadline = monotonic() + FAREWELL_S

    def _hear(self, ready: Sequence[tuple[selectors.SelectorKey, int]]) -> set[int] | None:
        """The signals that came; deaths are kept. None at the end."""
        signals: set[int] = set()
        for key, _ in ready:
            if key.data is None:
                data = os.read(self._read, 64)
                if not data:
                    return None
                signals |= set(data)
            elif key.data is _CALL:
                self._called = bool(os.read(key.fd, 64))
            else:
                name, pid = key.data
                self._deaths[name] = _exit_status(pid, key.fd)
                self._selector.unregister(key.fd)
                os.close(key.fd)
        return signals

    def _settle(self, *, asked: bool) -> set[int]:
        """Hear of the other deaths that belong to the first; returned are the signals of that time.

        Whoever is `asked` to end, as all others are, does not count those that obeyed.
        """
        first, signals = dict(self._deaths), set[int]()
        until = monotonic() + _SETTLE_S
        while (left := until - monotonic()) > 0:
            signals |= self._hear(self._selector.select(left)) or set()
        causes = first if asked else self._deaths
        self._deaths = {
            name: status
            for name, status in causes.items()
            if status not in _STOPS or (name in first and not asked)
        }
        return signals

    def _notice(self, number: signal.Signals | None) -> Notice:
        return Notice(
            signal=number,
            deaths=dict(self._deaths),
            called=self._called,
            orphaned=os.getppid() != self._parent,
        )

    def _give_up(self) -> None:
        if self._finishing:
            os._exit(1)
        self._end(self._notice(signal.SIGINT))


def _exit_status(pid: int, descriptor: int) -> int | None:
    """The wait status of a process that has ended, if the kernel still tells it.

    As long as nobody has reaped it, that is the last field of proc_pid_stat(5); after that its
    `descriptor` knows (Linux 6.15 or newer).
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        return int(fields.rpartition(")")[2].split()[-1])
    except (OSError, ValueError, IndexError):
        return _status_after_reaping(descriptor)


def _status_after_reaping(descriptor: int) -> int | None:
    """``exit_code`` of ``struct pidfd_info``, by ``PIDFD_GET_INFO`` (<linux/pidfd.h>)."""
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


class Interruption:
    """Ends a session on SIGTERM or SIGHUP like on Ctrl-C: everything measured is written, and once.

    A scheduler sends the one, a terminal that is closed the other. They often come twice:
    ``timeout`` of coreutils sends its signal to the process and to its group, and people press
    Ctrl-C again. While pytest is ending, a second one would cost its exit code and the run its
    status.

    A base of launchers whose process writes results: they are registered after what writes. A
    handler that is set already stays, and so does a signal that is ignored, as ``nohup`` has it.
    """

    _asked = _ends = _finishes = False
    _mine: Sequence[signal.Signals] = ()

    def handle_signals(self) -> None:
        """Set the handlers; only the main thread can."""
        if threading.current_thread() is threading.main_thread():
            self._mine = [n for n, default in _DEFAULTS.items() if signal.getsignal(n) is default]
        for number in self._mine:
            signal.signal(number, self._handle)

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self) -> None:
        """From now on pytest says why it ends, and who asks again is not heard until it has."""
        self._ends = True

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self) -> Generator[None, object, object]:
        """Now results are written, and then fixtures torn down, which may hang."""
        self._finishes = True
        return (yield)

    def pytest_unconfigure(self) -> None:
        """Put the handlers back."""
        for number in self._mine:
            signal.signal(number, _DEFAULTS[number])

    def _handle(self, number: int, frame: FrameType | None) -> None:
        __tracebackhide__ = True  # pytest is to show what was interrupted
        before, self._asked = self._asked, True
        if self._ends and not self._finishes:
            return
        if number == signal.SIGINT and not self._finishes:
            raise KeyboardInterrupt  # again, if a test or a debugger has caught the first
        if number != signal.SIGINT and before and self._finishes:  # who insists is not waited for
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        pytest.exit(f"interrupted by {signal.Signals(number).name}", pytest.ExitCode.INTERRUPTED)


_PR_SET_PDEATHSIG: Final = 1
"""prctl(2), <linux/prctl.h>."""


def die_with_parent(death: signal.Signals = signal.SIGKILL, *, parent: int | None = None) -> None:
    """Have the kernel send `death` to this process when its parent ends (Linux; else nothing).

    `parent` is the process that is expected to be the parent; when it has ended already, this
    process gets the signal now.

    A rank must not outlive its controller: it dies with it, in whatever it is doing.
    """
    if sys.platform != "linux":
        return
    expected = os.getppid() if parent is None else parent
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, death, 0, 0, 0)
    if os.getppid() != expected:
        os.kill(os.getpid(), death)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP raise SystemExit, as Ctrl-C raises KeyboardInterrupt; all is cleaned up.

    A signal that is ignored, as ``nohup`` has it, stays so.
    """

    def end(number: int, frame: FrameType | None) -> NoReturn:
        sys.exit(128 + number)  # as a shell says of a signal

    heard = (n for n in _STOPS if signal.getsignal(n) is not signal.SIG_IGN)
    with _handled(end, *heard):
        yield


@contextmanager
def unheard() -> Iterator[None]:
    """Whoever cleans up is not asked to end a second time."""
    with _handled(signal.SIG_IGN, *_ENDING):
        yield


@contextmanager
def deferred() -> Iterator[None]:
    """What comes now is heard at the end of this.

    An exception while a process is being started would lose it: nobody would end it then.
    """
    came: list[int] = []
    try:
        with _handled(lambda number, _: came.append(number), *_ENDING):
            yield
    finally:
        for number in came[:1]:
            signal.raise_signal(number)


@contextmanager
def _handled(
    handler: Callable[[int, FrameType | None], Any] | signal.Handlers, *numbers: signal.Signals
) -> Iterator[None]:
    previous: dict[signal.Signals, Any] = {}
    with suppress(ValueError):  # not in the main thread, where no signal raises anything
        for number in numbers:
            previous[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, before)
