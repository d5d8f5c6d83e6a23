"""Suspension, with a process that is really stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.measure.probes.interference import Suspension

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell")

MEASURED = """
import signal
from gpubench_plugin.measure.probes.interference import Suspension

signal.signal(signal.SIGUSR1, lambda *_: None)
with Suspension() as suspension:
    print("measures", flush=True)
    input()
print(suspension.flags)
"""


def stop(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGSTOP)
    _, status = os.waitpid(process.pid, os.WUNTRACED)  # until all its threads have stopped
    assert os.WIFSTOPPED(status)
    process.send_signal(signal.SIGCONT)


def interrupt(process: subprocess.Popen[str]) -> None:
    for number in (signal.SIGCONT, signal.SIGUSR1):
        process.send_signal(number)
    time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.parametrize(("happens", "flags"), [(stop, "('suspended',)"), (interrupt, "()")])
def test_stop_is_noticed_and_a_signal_is_none(
    happens: Callable[[subprocess.Popen[str]], None], flags: str
) -> None:
    """A stop of no length will do; SIGCONT without one, and what a handler takes, stop nothing."""
    with subprocess.Popen(
        [sys.executable, "-c", MEASURED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "measures\n"
        happens(process)
        out, _ = process.communicate("\n", timeout=60)
    assert out == f"{flags}\n"


def test_nothing_is_left_where_nothing_happened() -> None:
    """No flag, no thread and no open file, also where one is used after another."""
    before = sorted(os.listdir("/proc/self/fd")), threading.active_count()  # noqa: PTH208 # names are wanted
    for _ in range(3):
        with Suspension() as suspension:
            pass
        assert suspension.flags == ()
    after = sorted(os.listdir("/proc/self/fd")), threading.active_count()  # noqa: PTH208 # names are wanted
    assert after == before
