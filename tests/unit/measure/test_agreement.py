"""Several ranks, each in a thread with a clock of its own, agree on everything they do."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from gpubench_plugin.config.sections import MeasureSection
from gpubench_plugin.core.records import Samples
from gpubench_plugin.measure.clocks.base import Clock, Task
from gpubench_plugin.measure.clocks.cuda_kernel import CudaKernelClock
from gpubench_plugin.measure.clocks.cuda_step import CudaStepClock
from gpubench_plugin.measure.clocks.host import CpuClock, SynchronisedClock
from gpubench_plugin.measure.loop import Variant, measure
from gpubench_plugin.ranks.agreement import RankAgreement
from tests.support.fake_cuda import CURRENT, SIDE, FakeCuda, FakeHost

# A rank that takes part once too often, or not often enough, breaks the barrier for all.
_TIMEOUT_S = 20

US = 1000


class Board:
    """Where rank zero writes its decisions for threads."""

    def __init__(self, world_size: int) -> None:
        self.barrier = Barrier(world_size, timeout=_TIMEOUT_S)
        self.decision = 0


class Threads(RankAgreement):
    """The agreement of one rank among threads."""

    def __init__(self, board: Board, rank: int) -> None:
        self.world_size = board.barrier.parties
        self._board = board
        self._rank = rank

    def decide(self, proposal: int) -> int:
        if self._rank == 0:
            self._board.decision = proposal
        self._board.barrier.wait()
        decision = self._board.decision
        self._board.barrier.wait()
        return decision

    def barrier(self) -> None:
        self._board.barrier.wait()


class Rank:
    """One rank: a step of its own speed, which noise and slow first calls disturb.

    The second rank waits for its device, the third works on a stream other than the current one.
    """

    def __init__(self, rank: int, per_call_ns: int, kind: str) -> None:
        self.calls = 0
        self._noise = random.Random(rank)
        self._host = FakeHost()
        self._device = FakeCuda(self._host)
        self._per_call_ns = per_call_ns
        self._waits = rank % 2 == 1
        self._stream = SIDE if rank == 2 else CURRENT
        self._kind = kind

    def clock(self) -> Clock:
        clocks: dict[str, Callable[[], Clock]] = {
            "cpu": lambda: CpuClock(self._host.now),
            "cuda_step": lambda: CudaStepClock(self._device, self._host.now),
            "cuda_kernel": lambda: CudaKernelClock(self._device, now=self._host.now),
            "synchronised": lambda: SynchronisedClock(
                self._device.synchronize, timer="paper", now=self._host.now
            ),
        }
        return clocks[self._kind]()

    def step(self) -> None:
        self.calls += 1
        slow = 1 + 20 * self._noise.random() / self.calls
        ns = int(self._per_call_ns * slow * self._noise.uniform(0.9, 1.3))
        if self._kind == "cpu":
            self._host.spend(ns)
            return
        self._device.launch(enqueue_ns=US, device_ns=ns, stream=self._stream)
        if self._waits:
            self._device.item()


def run_all(ranks: list[Rank], section: MeasureSection) -> list[Samples]:
    """Measure on all ranks at once."""
    board = Board(len(ranks))

    def run(index: int) -> Samples:
        rank = ranks[index]
        try:
            return measure(
                [Variant(task=Task(step=rank.step), clock=rank.clock())],
                section=section,
                agreement=Threads(board, index),
            )[0]
        except BaseException:
            board.barrier.abort()
            raise

    with ThreadPoolExecutor(len(ranks)) as pool:
        return list(pool.map(run, range(len(ranks))))


@pytest.mark.slow
@pytest.mark.parametrize("speeds_us", [(20, 300, 9000), (9000, 300, 4), (40, 50, 60)])
@pytest.mark.parametrize("by", ["ci", "steps", "time"])
@pytest.mark.parametrize("kind", ["cpu", "cuda_step", "cuda_kernel", "synchronised"])
def test_ranks_of_different_speed_run_the_same_calls(
    kind: str, by: str, speeds_us: tuple[int, ...]
) -> None:
    """Calls, durations, rounds and blocks are equal on all ranks, whichever of them is slow."""
    section = MeasureSection(
        by=by, max_time_s=0.1, time_s=0.05, warmup_max_s=0.1, warmup_s=0.005, steps=60
    )
    ranks = [Rank(rank, us * US, kind) for rank, us in enumerate(speeds_us)]
    samples = run_all(ranks, section)
    shapes = {
        (
            len(one.durations_s),
            one.calls_per_duration,
            one.durations_per_round,
            one.block_calls,
            len(one.warmup_s),
            one.warmup_calls,
            "unsteady" in one.flags,
            "cut_short" in one.flags,
        )
        for one in samples
    }
    assert len(shapes) == 1
    assert len({rank.calls for rank in ranks}) == 1
    assert [1 + one.warmup_calls + one.calls for one in samples] == [r.calls for r in ranks]


def test_alone_is_an_agreement() -> None:
    """One rank agrees with itself at once."""
    alone = RankAgreement()
    alone.barrier()
    assert (alone.world_size, alone.decide(42)) == (1, 42)


def test_ranks_meet_before_the_first_call() -> None:
    """A rank that comes early does not wait, and be timed, inside its first call."""
    host, order = FakeHost(), list[str]()

    class Noted(RankAgreement):
        def decide(self, proposal: int) -> int:
            order.append("met")
            return proposal

        def barrier(self) -> None:
            order.append("met")

    def step() -> None:
        order.append("called")
        host.spend(2000 * US)

    measure(
        [Variant(task=Task(step=step), clock=CpuClock(host.now))],
        section=MeasureSection(),
        agreement=Noted(),
    )[0]
    assert order[:2] == ["met", "called"]
