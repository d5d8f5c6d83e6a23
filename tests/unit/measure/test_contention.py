"""Contention, with real neighbours on the same processor."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.measure.probes import CONTENDED, Contention

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(
    not os.path.exists("/proc/self/schedstat"),  # noqa: PTH110 # a kernel's file
    reason="this kernel keeps no schedstat",
)


@pytest.fixture
def one_processor() -> Iterator[int]:
    """This thread, and what it starts, on one processor only."""
    allowed = os.sched_getaffinity(0)
    chosen = min(allowed)
    os.sched_setaffinity(0, {chosen})
    yield chosen
    os.sched_setaffinity(0, allowed)


@pytest.mark.slow
@pytest.mark.usefixtures("one_processor")
def test_neighbours_on_the_same_processor_are_flagged() -> None:
    """Two busy processes on our processor leave us a third of it, and the flag says so."""
    command = [sys.executable, "-c", "while True: pass"]
    neighbours = [subprocess.Popen(command) for _ in range(2)]
    try:
        with Contention() as contention:
            _spin(0.5)
    finally:
        for neighbour in neighbours:
            neighbour.kill()
            neighbour.wait()
    assert contention.flags == (CONTENDED,)


@pytest.fixture
def asleep() -> Iterator[int]:
    """The number of a thread that sleeps until the test has ended."""
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    assert thread.native_id is not None
    until = time.monotonic() + 20
    while state(thread.native_id) != "S" and time.monotonic() < until:
        time.sleep(0.01)
    yield thread.native_id
    end.set()
    thread.join()


def test_sleeping_is_no_contention(tmp_path: Path, asleep: int) -> None:
    """A thread that does not want to run does not wait for a processor, however busy those are."""
    (tmp_path / str(asleep)).symlink_to(f"/proc/self/task/{asleep}")
    assert (tmp_path / str(asleep) / "schedstat").read_text()
    with Contention(tmp_path) as contention:
        time.sleep(0.5)
    assert contention.flags == ()
    assert state(asleep) == "S"


@pytest.mark.parametrize(("waited_ns", "flags"), [(10**6, ()), (10**12, (CONTENDED,))])
def test_waiting_of_all_threads_counts(
    tmp_path: Path, waited_ns: int, flags: tuple[str, ...]
) -> None:
    """What a thread waited before does not count, what a new thread waited does."""
    write(tmp_path, "1", 10**15)
    with Contention(tmp_path) as contention:
        write(tmp_path, "2", waited_ns)
        time.sleep(0.05)
    assert contention.flags == flags


def test_unknown_account_flags_nothing(tmp_path: Path) -> None:
    """Without the account, or with one that cannot be read, nothing is said."""
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "schedstat").write_text("none\n")
    with Contention(tmp_path) as contention:
        pass
    assert contention.flags == ()


def write(tasks: Path, thread: str, waited_ns: int) -> None:
    """The account of one thread."""
    folder = tasks / thread
    folder.mkdir(exist_ok=True)
    (folder / "schedstat").write_text(f"0 {waited_ns} 1\n")


def state(thread: int) -> str:
    """What a thread of this process does, as the kernel says: R while running, S while sleeping."""
    stat = Path(f"/proc/self/task/{thread}/stat").read_text()
    return stat.rpartition(")")[2].split()[0]


def _spin(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass
