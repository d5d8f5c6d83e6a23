from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpubench_plugin.launchers.torchrun import exit_watcher
from gpubench_plugin.launchers.torchrun.exit_watcher import Deaths, ExitWatcher

Notice = tuple[signal.Signals | None, Deaths, bool]


@pytest.fixture
def notices() -> queue.Queue[Notice]:
    """What a termination told."""
    return queue.Queue()


@pytest.fixture
def termination(notices: queue.Queue[Notice]) -> Iterator[ExitWatcher]:
    """One of this process, whose main thread SIGTERM would stop for good."""
    made = ExitWatcher(lambda *notice: notices.put(notice))
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "status"), [("os.kill(os.getpid(), 9)", 9), ("os._exit(3)", 3 << 8)]
)
def test_death_is_told_with_its_status(
    termination: ExitWatcher, notices: queue.Queue[Notice], end: str, status: int
) -> None:
    """As the kernel tells it until somebody reaps the process."""
    code = f"import os; input(); {end}"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    termination.watch({7: process.pid})

    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.close()

    notice = notices.get(timeout=30)
    assert notice == (None, {7: status}, False)
    process.wait()


@pytest.mark.slow
def test_call_through_the_pipe_is_told(
    termination: ExitWatcher, notices: queue.Queue[Notice], tmp_path: Path
) -> None:
    """Another process can have this one find out what is wrong."""
    pipe = tmp_path / "bell"
    os.mkfifo(pipe)
    termination.accept_alerts(pipe)

    for _ in range(2):  # whom the first call finds with nothing to end hears the next one
        pipe.write_bytes(b"!")
        assert notices.get(timeout=30) == (None, {}, True)

    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        termination.watch({7: process.pid})
        assert notices.get(timeout=30)[2] is False


@pytest.mark.slow
def test_error_while_ending_ends_the_process_loudly() -> None:
    """SIGTERM stops the main thread for good, so nobody else would end it."""
    code = """
import signal
from gpubench_plugin.launchers.torchrun.exit_watcher import ExitWatcher
ExitWatcher(lambda *notice: 1 / 0)
signal.raise_signal(signal.SIGTERM)
"""
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, check=False, capture_output=True, timeout=60)

    assert ended.returncode == 3
    assert b"ZeroDivisionError" in ended.stderr


def test_only_who_is_asked_to_end_has_to_finish_in_time(
    notices: queue.Queue[Notice], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any other signal that Python handles does not limit how long results may be written."""
    monkeypatch.setattr(exit_watcher, "EXIT_GRACE_S", 0.0)
    ended = threading.Event()
    monkeypatch.setattr(exit_watcher.os, "_exit", lambda code: ended.set())
    before = signal.signal(signal.SIGUSR2, lambda *_: None)
    termination = ExitWatcher(lambda *notice: notices.put(notice))
    termination.finish()
    try:
        signal.raise_signal(signal.SIGUSR2)
        assert not ended.wait(0.3)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert ended.wait(30)
    finally:
        termination.close()
        signal.signal(signal.SIGUSR2, before)


def test_everything_is_as_before_once_closed(notices: queue.Queue[Notice]) -> None:
    """Signal handlers, the wakeup descriptor and the number of threads are put back."""
    numbers = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    handlers, threads = [signal.getsignal(n) for n in numbers], threading.active_count()

    termination = ExitWatcher(lambda *notice: notices.put(notice))
    assert signal.getsignal(signal.SIGTERM) != handlers[0]
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert notices.empty(), "a Ctrl-C that Python notices is Python's"
    termination.close()
    termination.close()

    assert [signal.getsignal(n) for n in numbers] == handlers
    assert threading.active_count() == threads
    assert signal.set_wakeup_fd(-1) == -1


def test_nohup_is_respected(notices: queue.Queue[Notice]) -> None:
    """A signal that is ignored when this begins stays so."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        termination = ExitWatcher(lambda *notice: notices.put(notice))
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        termination.close()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.slow
def test_sigterm_and_ctrl_c_deep_in_c_are_told_from_outside() -> None:
    """A main thread that never comes back to Python does not keep its process from ending."""
    code = """
import ctypes, os, threading
from gpubench_plugin.launchers.torchrun.exit_watcher import ExitWatcher
def end(number, *_):
    os.write(1, number.name.encode())
    os._exit(5)
ExitWatcher(end)
lock, acquire = ctypes.create_string_buffer(64), ctypes.CDLL(None).pthread_mutex_lock
acquire(lock)
threading.Timer(0.3, os.write, (1, b"ready ")).start()
acquire(lock)  # held by this thread already: never returns
"""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.read(6) == b"ready "
        process.send_signal(number)
        out, _ = process.communicate(timeout=30)
        assert (process.returncode, out.decode()) == (5, number.name)
