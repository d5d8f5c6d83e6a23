"""Contention, with real neighbours on the same processor."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.config.sections import MeasureSection
from gpubench_plugin.measure.clocks.base import Task
from gpubench_plugin.measure.clocks.host import CpuClock
from gpubench_plugin.measure.loop import Variant, measure
from gpubench_plugin.measure.probes import interference
from gpubench_plugin.measure.probes.interference import Contention
from gpubench_plugin.ranks.agreement import RankAgreement
from tests.support.fake_cuda import FakeHost

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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


@contextmanager
def two_neighbours() -> Iterator[list[int]]:
    """Their process ids: busy orphans, so that this process knows nothing of them."""
    busy = f"{sys.executable} -c 'while True: pass' > /dev/null 2>&1 & echo $!"
    shell = subprocess.run(["sh", "-c", f"{busy}; {busy}"], capture_output=True, check=True)
    pids = [*map(int, shell.stdout.split())]
    try:
        yield pids
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.usefixtures("one_processor")
def test_neighbours_on_the_same_processor_are_flagged() -> None:
    """Two busy processes on our processor leave us a third of it, and the flag says so."""
    with two_neighbours():
        contention = Contention()
        with contention:
            _spin(0.5)
        assert "contended" in contention.flags


@pytest.mark.slow
@pytest.mark.usefixtures("one_processor")
def test_what_ranks_run_is_nobody_elses() -> None:
    """Two ranks beside this one run twice as long as it alone, which the accounts show."""
    with two_neighbours() as ranks:
        processes = [(os.getpid(),), (os.getpid(), *ranks)]
        before = [interference._cpu_times(pids) for pids in processes]
        _spin(0.5)
        after = [interference._cpu_times(pids) for pids in processes]
    alone, together = (now[1] - then[1] for then, now in zip(before, after, strict=True))
    assert together - alone > alone


@pytest.mark.slow
@pytest.mark.usefixtures("one_processor")
def test_what_children_run_is_nobody_elses() -> None:
    """Whenever they began, and where one has ended meanwhile, the accounts show what they took."""
    command = [sys.executable, "-c", "while True: pass"]
    with subprocess.Popen(command) as first, ExitStack() as stack:
        before, own_ns = interference._cpu_times((os.getpid(),)), time.process_time_ns()
        second = stack.enter_context(subprocess.Popen(command))
        _spin(0.5)
        first.kill()
        first.wait()
        after, spun_ns = interference._cpu_times((os.getpid(),)), time.process_time_ns() - own_ns
        second.kill()
    # The processor never idles: what is known beyond this process is what the two ran.
    assert after[1] - before[1] - spun_ns > spun_ns


@pytest.mark.parametrize(
    ("waited_ms", "others_ms", "threads", "flags"),
    [
        pytest.param(300, 700, 1, ("contended",), id="a neighbour"),
        pytest.param(300, 700, 2, ("contended", "oversubscribed"), id="and several threads"),
        pytest.param(300, 40, 2, ("oversubscribed",), id="own threads"),
        pytest.param(300, 40, 1, ("oversubscribed",), id="ranks on one thread each"),
        pytest.param(30, 700, 1, ("descheduled",), id="for a short time"),
        pytest.param(30, 10, 1, (), id="and for no others"),
        pytest.param(10, 700, 1, (), id="hardly"),
    ],
)
def test_own_threads_that_wait_for_each_other_are_told_from_others(
    machine_of: MachineOf,
    monkeypatch: pytest.MonkeyPatch,
    waited_ms: float,
    others_ms: float,
    threads: int,
    flags: tuple[str, ...],
) -> None:
    """The waits of a second beside what others ran on the processors of this process."""
    machine, known_ns = machine_of(2), 0
    monkeypatch.setattr(interference, "usable_cores", lambda: {0, 1})
    monkeypatch.setattr(interference, "_cpu_times", lambda _: (machine.host.now(), known_ns))
    contention = Contention()
    with contention:
        ran = dict.fromkeys(range(threads), 600.0)
        machine.spend(1000, ran=ran, waited={0: waited_ms})
    known_ns = round((2 * 1000 - others_ms) * MS)
    assert contention.flags == flags


MS = 1_000_000


class Machine:
    """Threads whose accounts grow as they are told, and a clock beside them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tasks: Path, threads: int) -> None:
        self.host = FakeHost()
        monkeypatch.setattr(interference, "_TASKS", tasks)
        monkeypatch.setattr(interference, "perf_counter_ns", self.host.now)
        monkeypatch.setattr(interference, "_cpu_times", lambda _: (self.host.now(), 0))
        self._tasks = tasks
        self._accounts = [[0, 0] for _ in range(threads)]
        self.spend(0)

    def spend(
        self,
        ms: float,
        *,
        ran: Mapping[int, float] = MappingProxyType({}),
        waited: Mapping[int, float] = MappingProxyType({}),
    ) -> None:
        """Let time pass in which these threads ran, or waited, for so many milliseconds."""
        self.host.spend(round(ms * MS))
        for thread, account in enumerate(self._accounts):
            account[0] += round(ran.get(thread, 0) * MS)
            account[1] += round(waited.get(thread, 0) * MS)
            write(self._tasks, str(thread), *account)


MachineOf = Callable[[int], Machine]


@pytest.fixture
def machine_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> MachineOf:
    """Makes one of so many threads."""
    return partial(Machine, monkeypatch, tmp_path)


def test_only_timed_blocks_count(machine_of: MachineOf) -> None:
    """What was waited before, between and after the blocks is not the measurement's."""
    machine = machine_of(1)
    contention = Contention()
    for _ in range(3):
        machine.spend(100, ran={0: 10}, waited={0: 90})
        with contention:
            machine.spend(10, ran={0: 9.9}, waited={0: 0.1})
    machine.spend(100, waited={0: 100})
    assert contention.flags == ()


def test_a_wait_in_the_blocks_counts(machine_of: MachineOf) -> None:
    """From 5% of the time of all blocks on, and no longer when later blocks were left alone."""
    machine = machine_of(1)
    contention = Contention()
    with contention:
        machine.spend(10, ran={0: 9}, waited={0: 1})
    assert contention.flags == ("contended",)
    with contention:
        machine.spend(11, ran={0: 11})
    assert contention.flags == ("descheduled",)


def test_a_wait_while_the_accounts_are_read_is_a_part_of_that_time(
    machine_of: MachineOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a short one is much of a block that is shorter than the reading."""
    machine, read = machine_of(1), interference.thread_times

    def spending() -> dict[str, interference.ThreadTimes]:
        machine.spend(1, ran={0: 0.99}, waited={0: 0.01})
        return read()

    monkeypatch.setattr(interference, "thread_times", spending)
    contention = Contention()
    with contention:
        machine.spend(0.01, ran={0: 0.01})
    assert contention.flags == ()


ALL = range(16)


@pytest.mark.parametrize(
    ("threads", "ms", "ran", "waits", "contended"),
    [
        pytest.param(
            65,
            1000,
            {0: 990} | dict.fromkeys(range(1, 65), 1),
            [dict.fromkeys(range(1, 65), 1)],
            False,
            id="64 idle ones wake now and then",
        ),
        pytest.param(2, 1000, {0: 990, 1: 5}, [{1: 900}], False, id="an idle one waits for long"),
        pytest.param(
            4, 10, dict.fromkeys(range(4), 9), [{n: 1} for n in range(4)], True, id="one of four"
        ),
        pytest.param(
            16, 1000, dict.fromkeys(ALL, 990), [dict.fromkeys(ALL, 5)], False, id="all together"
        ),
    ],
)
def test_the_busy_thread_that_waits_longest_counts(
    machine_of: MachineOf,
    threads: int,
    ms: float,
    ran: dict[int, float],
    waits: list[dict[int, float]],
    contended: bool,
) -> None:
    """In every block; which one it is may change. Nothing timed waits for threads without work."""
    machine = machine_of(threads)
    contention = Contention()
    for waited in waits:
        with contention:
            machine.spend(ms, ran=ran, waited=waited)
    assert ("contended" in contention.flags) is contended


def test_unknown_account_flags_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the account, or with one that cannot be read, nothing is said."""
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "schedstat").write_text("none\n")
    for tasks in (tmp_path, tmp_path / "none"):
        monkeypatch.setattr(interference, "_TASKS", tasks)
        contention = Contention()
        with contention:
            pass
        assert contention.flags == ()


def test_contended_measuring_ends_as_any(machine_of: MachineOf) -> None:
    """More time would wait as long."""
    machine = machine_of(1)
    samples = measure(
        [
            Variant(
                task=Task(step=lambda: machine.spend(2, ran={0: 1.8}, waited={0: 0.2})),
                clock=CpuClock(machine.host.now),
            )
        ],
        section=MeasureSection(),
        agreement=RankAgreement(),
        make_contention=Contention,
    )[0]
    assert samples.flags == ("contended",)
    assert sum(samples.block_s) == pytest.approx(0.2, abs=0.01)


def write(tasks: Path, thread: str, ran_ns: int, waited_ns: int) -> None:
    """The account of one thread."""
    folder = tasks / thread
    folder.mkdir(exist_ok=True)
    (folder / "schedstat").write_text(f"{ran_ns} {waited_ns} 1\n")


def _spin(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass
