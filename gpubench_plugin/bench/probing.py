"""Probes around the timed calls, and the inspection of a call after them."""

from __future__ import annotations

import re
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpubench_plugin.core.quality_flags import PRECISION_UNUSED
from gpubench_plugin.measure.probes.interference import Suspension
from gpubench_plugin.measure.probes.memory import MemoryGrowth, PeakMemory, TensorMemory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import torch

    from gpubench_plugin.bench.step import TimedStep
    from gpubench_plugin.config.case import Case
    from gpubench_plugin.core.records import Samples
    from gpubench_plugin.measure.clocks.base import Clock
    from gpubench_plugin.measure.probes.nvml import DeviceState
    from gpubench_plugin.precision.base import Precision


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
        with self.memory.left_out():
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
    device_state: DeviceState,
    tensors: TensorMemory | None,
) -> Iterator[Probes]:
    """Context with probes of a measurement on `device` by `clocks`.

    The memory of the clocks is allocated first, and counts not.
    """
    growth = MemoryGrowth(device)
    with ExitStack() as stack:
        own_bytes = sum(clock.prepare() for clock in clocks)
        memory = stack.enter_context(PeakMemory(device, own_bytes))
        stack.enter_context(device_state)
        for clock in clocks:
            clock.on_launched = device_state.sample
        suspension = stack.enter_context(Suspension())
        yield Probes(
            memory=memory,
            device_state=device_state,
            suspension=suspension,
            growth=growth,
            tensors=tensors,
        )


def inspect_call(
    timed: TimedStep,
    samples: Samples,
    *,
    precision: Precision | None,
    tensors: TensorMemory | None,
) -> tuple[Samples, dict[str, Any], dict[str, float]]:
    """Inspect the tensors of an extra untimed call: flagged `samples`, correctness and facts.

    Only for benchmarks with a `precision`, flagged ``precision_unused`` if no operation is in it,
    and for the memory of `tensors` on a CPU.
    """
    if precision is None and tensors is None:
        return samples, {}, {}
    from gpubench_plugin.measure.probes.operations import take_census

    census = take_census(timed.run_briefly)
    if tensors is not None:
        tensors.add_inputs(None if census is None else census.inputs)
    facts = {} if tensors is None else tensors.facts
    if precision is None:
        return samples, {}, facts
    if census is None or not census.confirms(precision.compute_dtype):
        samples = samples.flagged(PRECISION_UNUSED)
    return samples, {"product_dtypes": census and dict(census.products)}, facts


def file_name(case: Case) -> str:
    """Name of the case as a file name, with unsafe characters replaced."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", case.name).strip("-")
