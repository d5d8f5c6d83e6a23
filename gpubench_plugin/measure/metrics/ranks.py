"""Metrics of ranks: pipelines, collectives, communication, experts, phases, memory."""

from __future__ import annotations

from collections.abc import Iterator

from gpubench_plugin.core.quality_flags import doubtful_flags
from gpubench_plugin.core.records import Metric, Observation
from gpubench_plugin.measure.metrics.base import Fact, facts, metrics
from gpubench_plugin.measure.metrics.throughput import meanings, median_step_s, rate


@metrics(
    "pipelines of 2 ranks or more",
    needs="one_process_s",
    one_process_s="Time of one process for the same work, measured alternately",
    speed_up="Time of one process over the pipeline's median",
    ideal_speed_up="Ideal speed-up with free communication: M·w/(M + w - 1)",
    pipeline_efficiency="Speed-up over the ideal speed-up",
)
def pipeline(observation: Observation) -> Iterator[Metric]:
    """Speed-up over one process, and the ideal one given pipeline fill; none of a doubtful median.

    ``one_process_s`` is measured before the timing, by so few calls that there is no interval. M
    samples through w ranks of equal parts gain M·w/(M + w - 1) at best, as for the micro-batches
    of Huang et al. 2018 (https://arxiv.org/abs/1811.06965), section 2.3.
    """
    one_process_s = observation.facts["one_process_s"]
    ideal = observation.facts["ideal_speed_up"]
    yield Metric(name="one_process_s", value=one_process_s, unit="s")
    yield Metric(name="ideal_speed_up", value=ideal, unit="1")
    if doubtful_flags(observation.samples.flags):
        return
    speed_up = one_process_s / median_step_s(observation.samples)
    yield Metric(name="speed_up", value=speed_up, unit="1", better="higher")
    value = speed_up / ideal
    yield Metric(name="pipeline_efficiency", value=value, unit="fraction", better="higher")


@metrics(
    "collectives",
    needs="collective_bytes",
    **meanings(
        algbw_bytes_per_s="Size of the message over the time of a collective",
        busbw_bytes_per_s="Algorithm bandwidth times the bus factor",
    ),
)
def bandwidth(observation: Observation) -> Iterator[Metric]:
    """Algorithm bandwidth: message size over the mean time of a collective, on the slowest rank.

    Bus bandwidth is that times a factor of the collective and the ranks. Source:
    https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
    """
    size = observation.facts["collective_bytes"]
    yield from rate("algbw_bytes_per_s", size, "bytes/s", observation)
    size *= observation.facts["bus_factor"]
    yield from rate("busbw_bytes_per_s", size, "bytes/s", observation)


@metrics(
    "benchmarks using the fixture exposed_communication",
    needs="step_exchanging_s",
    exposed_communication_s="Time that gradient exchange adds to the median step",
)
def exposed_communication(observation: Observation) -> Iterator[Metric]:
    """Median step with the exchange minus that without; noise can make a small one negative.

    Ten steps of each, in turns after the timed calls, each as long as on the slowest rank.
    """
    exposed_s = observation.facts["step_exchanging_s"] - observation.facts["step_alone_s"]
    yield Metric(name="exposed_communication_s", value=exposed_s, unit="s", better="lower")


@facts(
    "mixture-of-experts layers",
    expert_load=Fact("Rows computed by the busiest rank, relative to an even share", "1", "lower"),
    expert_capacity=Fact("Maximum token visits per expert and rank", "count"),
    dropped_fraction=Fact(
        "Token visits dropped at full experts, on the rank with most", "fraction", "lower"
    ),
    expert_cache_hit_fraction=Fact(
        "Expert uses served from the device cache", "fraction", "higher"
    ),
)
def expert_load() -> None:
    """Load and dropped visits, each of the rank with most, and cache hits.

    The cache is that of experts whose weights are in pinned memory.
    """


_PREFIX, _SUFFIX = "phase_", "_s"


@metrics(
    "mixture-of-experts layers",
    needs="phase_",
    phase_experts_s="Forward time of a phase, here experts; one metric phase_<name>_s each",
    phase_experts_share="Share of the phase in all phases; one metric phase_<name>_share each",
)
def phases(observation: Observation) -> Iterator[Metric]:
    """Time of each phase of a forward pass, and its share; means over the ranks.

    Phases are timed one by one in separate calls: their sum is not the step's time.
    """
    times = {
        name.removeprefix(_PREFIX).removesuffix(_SUFFIX): seconds
        for name, seconds in observation.facts.items()
        if name.startswith(_PREFIX) and name.endswith(_SUFFIX)
    }
    total = sum(times.values())
    for name, seconds in times.items():
        yield Metric(name=f"phase_{name}_s", value=seconds, unit="s", better="lower")
        if total > 0:
            yield Metric(name=f"phase_{name}_share", value=seconds / total, unit="fraction")


@facts(
    "cpu, cuda, xpu",
    peak_memory_bytes=Fact(
        "Peak memory of tensors, on the rank with the highest peak", "bytes", "lower"
    ),
    process_peak_memory_bytes=Fact("CPU: peak resident size of a process", "bytes", "lower"),
)
def peak_memory() -> None:
    """Peak memory of tensors on any rank, and of a process, which is not gated by default."""
