"""Before, around and after the timed calls: the wait for throttled GPUs, probes, an inspection.

``measure.throttle`` asks for the wait, or for the refusal of a throttled GPU's numbers.
"""

from __future__ import annotations

import re
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final

from gpubench_plugin.core.errors import Throttled, Unsupported, error_text
from gpubench_plugin.core.events import FlopsEvent, ThrottledEvent, ThrottleWaitEvent
from gpubench_plugin.core.quality_flags import PRECISION_UNUSED, THROTTLED
from gpubench_plugin.measure.probes.interference import Suspension
from gpubench_plugin.measure.probes.memory import MemoryGrowth, PeakMemory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import torch

    from gpubench_plugin.bench.step import TimedStep
    from gpubench_plugin.config.case import Case
    from gpubench_plugin.core.records import Measurement, Samples
    from gpubench_plugin.measure.clocks.base import Clock
    from gpubench_plugin.measure.probes.nvml import DeviceState
    from gpubench_plugin.measure.probes.tensor_memory import TensorMemory
    from gpubench_plugin.measure.protocols import Log, Subject
    from gpubench_plugin.precision.base import Precision
    from gpubench_plugin.ranks.agreement import RankAgreement
    from gpubench_plugin.ranks.process_group import ProcessGroup
    from gpubench_plugin.ranks.ranks import Alone
    from gpubench_plugin.results.report_payload import LiveRecord


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


# Longest wait: a GPU without work has cooled by then, or has other reasons.
LONGEST_WAIT_S: Final = 60.0

# Share of a benchmark's timeout: waiting must not be what it fails by.
TIMEOUT_SHARE: Final = 0.25

# Seconds between two readings.
_POLL_S: Final = 0.5


def require_nvml(case: Case, device_state: DeviceState) -> None:
    """Before the first call on a GPU, with ``wait`` or ``fail``.

    Raises:
        Unsupported: NVML is missing, or does not know the device.
    """
    if not device_state.is_watching:
        raise Unsupported(
            f"measure.throttle={case.configuration.measure.throttle} requires NVML, which does not "
            f"answer for {case.device.torch_name}: pip install 'pytest-gpubench[gpu]'"
        )


def refuse_throttled(measurement: Measurement, record: LiveRecord) -> None:
    """After the timed calls, with ``fail``; the journal keeps the numbers.

    Raises:
        Throttled: a rank's GPU was throttled.
    """
    if THROTTLED in measurement.flags:
        values = {name: metric.value for name, metric in measurement.finite().metrics.items()}
        record.log(ThrottledEvent(flags=measurement.flags, metrics=values).line())
        raise Throttled(
            "the GPU was throttled (measure.throttle=fail); the journal has the numbers"
        )


def wait_while_throttled(
    slowing_reasons: Callable[[], Sequence[str]], agreement: RankAgreement, *, limit_s: float
) -> ThrottleWaitEvent | None:
    """Wait until no rank's device is throttled, for at most `limit_s`; None if none was.

    `slowing_reasons` tells those of this rank's device now; the event has them as of the start.
    Every rank must call this, and all wait equally long. Heat leaves an idle device; a power limit
    that only work reaches does not show.
    """
    reasons = tuple(slowing_reasons())
    is_throttled = not agreement.everywhere(not reasons)
    if not is_throttled:
        return None
    start_s = monotonic()
    while is_throttled and agreement.decide(int(monotonic() - start_s < limit_s)):
        sleep(min(_POLL_S, limit_s))
        is_throttled = not agreement.everywhere(not slowing_reasons())
    return ThrottleWaitEvent(
        waited_s=monotonic() - start_s, reasons=reasons, still_throttled=is_throttled
    )


def inspect_call(
    timed: TimedStep,
    samples: Samples,
    *,
    precision: Precision | None,
    tensors: TensorMemory | None,
    group: ProcessGroup | Alone | None,
    root: Path,
) -> tuple[Samples, dict[str, Any], dict[str, float]]:
    """Inspect an extra untimed call, then graphs: flagged `samples`, correctness and facts.

    Every rank of the `group` must call it; None inspects nothing. Samples are flagged
    ``precision_unused`` if no operation is in the `precision`. The memory of `tensors` is
    completed. Compiled code is dropped. Places in the code are relative to `root`.
    """
    if group is None:
        return samples, {}, {}
    from gpubench_plugin.measure.probes.graphs import graphs_of
    from gpubench_plugin.measure.probes.host_reads import HostReads
    from gpubench_plugin.measure.probes.operations import take_census
    from gpubench_plugin.measure.probes.places import place_text

    reads, correctness = HostReads(group.device), dict[str, Any]()
    census = take_census(timed.run_briefly, reads)
    places = graphs_of(timed.run_briefly, group.agreement)
    if tensors is not None:
        tensors.add_inputs(None if census is None else census.inputs.values())
    facts = {} if tensors is None else tensors.facts
    if precision is not None:
        correctness["product_dtypes"] = census and dict(census.products)
        if census is None or not census.confirms(precision.compute_dtype):
            samples = samples.flagged(PRECISION_UNUSED)
    if census is not None:
        places["host_syncs"] = [place for place, _ in reads.reads]
        facts["device_to_host_bytes"] = float(sum(size for _, size in reads.reads))
    for metric, found in places.items():
        facts[metric] = float(len(found))
        if texts := [*dict.fromkeys(place_text(place, root) for place in found)]:
            correctness.setdefault("places", {})[metric] = texts[:5]
    return samples, correctness, facts


def count_flops(subject: Subject, log: Log) -> float | None:
    """Count the FLOPs of one call on fake tensors; `log` gets the operations without a formula.

    It gets the reason where they cannot be counted, None.
    """
    from gpubench_plugin.measure.probes import operations

    try:
        flops = operations.count_flops(subject.flops_step)
    except Exception as error:  # a model that needs values, while everything is measured
        flops = FlopsEvent(per_call=None, reason=error_text(error))
    log(flops.line())
    return flops.per_call or None


def file_name(case: Case) -> str:
    """Name of the case as a file name, with unsafe characters replaced."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", case.name).strip("-")
