"""Probes around the calls of one measurement: memory, the device's state, suspension."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import torch

    from gpubench_plugin.measure.clocks.base import Clock
    from gpubench_plugin.measure.probes.growth import MemoryGrowth
    from gpubench_plugin.measure.probes.memory import PeakMemory
    from gpubench_plugin.measure.probes.nvml import DeviceState
    from gpubench_plugin.measure.probes.suspension import Suspension
    from gpubench_plugin.measure.probes.tensor_memory import TensorMemory


@dataclass(frozen=True, kw_only=True)
class Probes:
    """What watches a measurement; its facts and flags are complete once :func:`probed` is left."""

    memory: PeakMemory
    device_state: DeviceState
    suspension: Suspension
    growth: MemoryGrowth
    tensors: TensorMemory | None

    def begin(self, call: Callable[[], object]) -> None:
        """Begin after the first call, with an untimed `call` of the step for its tensors."""
        if self.tensors is not None:
            self.tensors.watch(call)
        self.growth.begin()

    @property
    def facts(self) -> dict[str, float]:
        """Facts of memory and device."""
        return {**self.memory.facts, **self.device_state.facts}

    def flags(self, block_calls: Sequence[int], calls_per_duration: int) -> tuple[str, ...]:
        """All flags, given the calls between two readings of the memory in use."""
        return (
            *self.memory.flags,
            *self.growth.flags(block_calls, calls_per_duration),
            *self.device_state.flags,
            *self.suspension.flags,
        )


@contextmanager
def probed(
    device: torch.device,
    clocks: Sequence[Clock],
    *,
    sharing_ranks: int,
    tensors: TensorMemory | None,
    guard: Callable[[DeviceState], None],
) -> Iterator[Probes]:
    """Context with probes of a measurement on `device` by `clocks`.

    The memory of the clocks is allocated first, and counts not. The `guard` is called with the
    device's state before anything is measured.
    """
    from gpubench_plugin.measure.probes.growth import MemoryGrowth
    from gpubench_plugin.measure.probes.memory import PeakMemory
    from gpubench_plugin.measure.probes.nvml import DeviceState
    from gpubench_plugin.measure.probes.suspension import Suspension

    growth = MemoryGrowth(device)
    with ExitStack() as stack:
        own_bytes = sum(clock.prepare() for clock in clocks)
        memory = stack.enter_context(PeakMemory(device, own_bytes))
        device_state = stack.enter_context(DeviceState(device, sharing_ranks=sharing_ranks))
        for clock in clocks:
            clock.on_launched = device_state.sample
        guard(device_state)
        suspension = stack.enter_context(Suspension())
        yield Probes(
            memory=memory,
            device_state=device_state,
            suspension=suspension,
            growth=growth,
            tensors=tensors,
        )
