from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time

import pytest

from gpubench_plugin.system.watchdog import Watchdog


def test_what_ends_in_time_is_left_alone() -> None:
    """The thread is gone with the guarded block, and nothing was called."""
    barked = threading.Event()
    dog = Watchdog(barked.set)

    with dog.guarding(1000):
        (guard,) = [t for t in threading.enumerate() if t.name == "gpubench-watchdog"]
    guard.join(10)

    assert not guard.is_alive()
    assert not barked.is_set()


def test_whoever_comes_to_the_end_waits_for_a_bark() -> None:
    """Another thread barks; the ends of the process and of the test are not written at once."""
    order: list[str] = []
    barking, go_on = threading.Event(), threading.Event()

    def bark() -> None:
        assert threading.current_thread() is not threading.main_thread()
        barking.set()
        go_on.wait(10)
        order.append("barked")

    dog = Watchdog(bark)
    with dog.guarding(0.01):
        assert barking.wait(10)
        threading.Timer(0.05, go_on.set).start()
    order.append("went on")

    assert order == ["barked", "went on"]


@pytest.mark.slow
def test_debugger_has_all_the_time() -> None:
    """Once left alone, what runs may take as long as it likes."""
    barked = threading.Event()
    dog = Watchdog(barked.set)

    with dog.guarding(1):  # of which a loaded machine may take half before the next line
        dog.cancel()
        assert not barked.wait(1.2)


@pytest.mark.slow
def test_error_in_a_bark_ends_the_process_loudly() -> None:
    """Whoever waits for the end of the process does not wait for a thread that is gone."""
    code = """
import time
from gpubench_plugin.system.watchdog import Watchdog
with Watchdog(lambda: 1 / 0).guarding(0.01):
    time.sleep(1000)
"""
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, check=False, capture_output=True, timeout=60)

    assert ended.returncode == 3
    assert b"ZeroDivisionError" in ended.stderr


GUARDED = """
from gpubench_plugin.system.watchdog import Watchdog
import os
with Watchdog(lambda: os._exit(7)).guarding(1.5):
    print("guarded", flush=True)
    input()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("answered", "code"), [(True, 0), (False, 7)])
def test_time_in_which_the_process_is_stopped_does_not_count(answered: bool, code: int) -> None:
    """Stopped longer than it may take and continued, it has its time; a hang is found after all."""
    guarded = subprocess.Popen(
        [sys.executable, "-c", GUARDED], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert guarded.stdout is not None
    assert guarded.stdout.readline() == b"guarded\n"
    guarded.send_signal(signal.SIGSTOP)
    time.sleep(1.8)
    guarded.send_signal(signal.SIGCONT)
    time.sleep(0.3)  # for whoever would give up at once
    if answered:
        guarded.communicate(b"\n", timeout=60)

    assert guarded.wait(60) == code
    for pipe in (guarded.stdin, guarded.stdout):
        assert pipe is not None
        pipe.close()
