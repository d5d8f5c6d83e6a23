"""The process that kills one in which nobody reads the numbers of signals."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from gpubench_plugin.system import lock_guard
from tests.support.processes import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.slow]

GUARDED = """
import signal, socket, sys, time
from gpubench_plugin.system import lock_guard
received, wakeup = socket.socketpair()
lock_guard.start(received, [signal.SIGTERM, signal.SIGHUP], grace_s=0.2, stderr=2)
print("guarded", flush=True)
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
"""


class Guarded:
    """A process with a guard, which executes lines."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", GUARDED],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "guarded\n"

    @property
    def guards(self) -> list[psutil.Process]:
        return [
            process
            for process in psutil.process_iter()
            if [lock_guard.__file__, f"{self.process.pid}"] == _arguments(process)
        ]

    def guard(self) -> psutil.Process:
        """The only one, once its command can be read: that is empty while it begins."""
        wait_until(lambda: self.guards)
        (guard,) = self.guards
        return guard

    def runs(self, line: str) -> bool:
        """Whether it has executed the line."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline() == "done\n"


def _arguments(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()[3::2][:2]
    except psutil.Error:
        return []


@pytest.fixture
def guarded() -> Iterator[Guarded]:
    one = Guarded()
    with one.process:
        yield one
        one.process.kill()


def test_number_that_nobody_reads_is_the_end(guarded: Guarded) -> None:
    """A message says why; the guard ends, too."""
    guard = guarded.guard()
    assert not guarded.runs("wakeup.send(bytes([signal.SIGHUP])); time.sleep(60)")
    _, err = guarded.process.communicate()
    assert guarded.process.returncode == -signal.SIGKILL
    assert "gpubench: killed: asked to end, but a thread keeps Python's lock" in err
    guard.wait(timeout=10)


def test_nobody_has_to_read_why(guarded: Guarded) -> None:
    """The process ends also where its terminal is gone."""
    assert guarded.process.stderr is not None
    guarded.process.stderr.close()
    assert not guarded.runs("wakeup.send(bytes([signal.SIGHUP])); time.sleep(60)")


@pytest.mark.parametrize(
    "line",
    [
        "wakeup.send(bytes([signal.SIGTERM])); received.recv(1); time.sleep(1)",
        "wakeup.send(bytes([signal.SIGUSR1])); time.sleep(1)",
    ],
    ids=["read", "another's"],
)
def test_other_numbers_do_no_harm(guarded: Guarded, line: str) -> None:
    """One that is read, or that nobody waits for; the next request is still guarded."""
    assert guarded.runs(line)
    assert not guarded.runs("wakeup.send(bytes([signal.SIGTERM])); time.sleep(60)")


@pytest.mark.parametrize(
    "line",
    ["received.close(); wakeup.close()", "import os; os.fork() or time.sleep(2); os._exit(0)"],
)
def test_guard_ends_with_what_it_guards(guarded: Guarded, line: str) -> None:
    """When the socket is closed, or the process ends though another one has the socket."""
    guard = guarded.guard()
    guarded.runs(line)
    guard.wait(timeout=10)


def test_guard_is_nobodys_child(guarded: Guarded) -> None:
    """A test may wait for all children that it has started."""
    assert guarded.guard().is_running()
    assert psutil.Process(guarded.process.pid).children() == []
