"""The last result of a step: every clock keeps it, and no two of them at once."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.measure.clocks.base import Task
from gpubench_plugin.measure.clocks.cuda_kernel import CudaKernelClock
from gpubench_plugin.measure.clocks.cuda_step import CudaStepClock
from gpubench_plugin.measure.clocks.host import CpuClock, SynchronisedClock
from tests.support.fake_cuda import FakeCuda, FakeHost

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpubench_plugin.measure.clocks.base import Clock

HOST = FakeHost()
CLOCKS: dict[str, Callable[[], Clock]] = {
    "cpu": lambda: CpuClock(HOST.now),
    "cuda_step": lambda: CudaStepClock(FakeCuda(HOST), HOST.now),
    "cuda_kernel": lambda: CudaKernelClock(FakeCuda(HOST), now=HOST.now),
    "synchronised": lambda: SynchronisedClock(lambda: None, timer="mps", now=HOST.now),
}


class Result:
    """What a step returns."""


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize(("calls", "setup"), [(1, None), (4, None), (1, lambda: None)])
def test_a_clock_keeps_the_last_result_alone(
    clock: str, calls: int, setup: Callable[[], None] | None
) -> None:
    """It is dropped right before the next call, as if it had been thrown away at once."""
    made: list[weakref.ref[Result]] = []
    alive: list[int] = []

    def step() -> Result:
        alive.append(sum(ref() is not None for ref in made))
        HOST.spend(1000)
        made.append(weakref.ref(result := Result()))
        return result

    timer = CLOCKS[clock]()
    task = Task(step=step, setup=setup)
    timer.time_single_call(task)
    for _ in range(2):
        timer.block(task, durations=3, calls_per_duration=calls)
    assert set(alive) == {0}
    assert timer.result is made[-1]()
    assert timer.result is not None
