"""Metrics of ranks: pipelines, collectives, skew, communication, experts, phases, memory."""

from __future__ import annotations

from collections.abc import Iterator

from gpubench_plugin.core.quality_flags import doubtful_flags
from gpubench_plugin.core.records import Metric, Observation
from gpubench_plugin.measure.metrics._plausibility import median_step_s
from gpubench_plugin.measure.metrics._rates import meanings, rate
from gpubench_plugin.measure.metrics.base import fact, metrics


@metrics(
    "pipelines of 2 ranks or more",
    one_process_s="Time of one process for the same work, measured alternately",
    speed_up="Time of one process over the pipeline's median",
    ideal_speed_up="Ideal speed-up with free communication: M·w/(M + w - 1)",
    pipeline_efficiency="Speed-up over the ideal speed-up",
)
def pipeline(observation: Observation) -> Iterator[Metric]:
    """Speed-up over one process, and the ideal one given pipeline fill; none of a doubtful median.

    M samples through w ranks of equal parts gain M·w/(M + w - 1) at best, as for the micro-batches
    of Huang et al. 2018 (https://arxiv.org/abs/1811.06965), section 2.3.
    """
    one_process_s = observation.facts.get("one_process_s")
    ideal = observation.facts.get("ideal_speed_up")
    if not one_process_s or not ideal:
        return
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
    **meanings(algbw_bytes_per_s="Size of the message over the time of a collective"),
)
def algbw(observation: Observation) -> Iterator[Metric]:
    """Algorithm bandwidth: message size over the mean time of a collective, on the slowest rank.

    Source: https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
    """
    if "collective_bytes" in observation.facts:
        size = observation.facts["collective_bytes"]
        yield from rate("algbw_bytes_per_s", size, "bytes/s", observation)


@metrics(
    "collectives",
    **meanings(busbw_bytes_per_s="Algorithm bandwidth times the bus factor"),
)
def busbw(observation: Observation) -> Iterator[Metric]:
    """Bus bandwidth: algorithm bandwidth times a factor of the collective and the ranks.

    Source: https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
    """
    if {"collective_bytes", "bus_factor"} <= observation.facts.keys():
        size = observation.facts["collective_bytes"] * observation.facts["bus_factor"]
        yield from rate("busbw_bytes_per_s", size, "bytes/s", observation)


@metrics("2 ranks or more", rank_skew_s="Median of the slowest rank minus that of the fastest")
def rank_skew(observation: Observation) -> Iterator[Metric]:
    """Range of the ranks' median rounds."""
    if len(observation.ranks) > 1:
        medians = [rank.median_s for rank in observation.ranks]
        skew_s = max(medians) - min(medians)
        yield Metric(name="rank_skew_s", value=skew_s, unit="s", better="lower")


@metrics(
    "benchmarks using the fixture exposed_communication",
    exposed_communication_s="Time that gradient exchange adds to the median step",
)
def exposed_communication(observation: Observation) -> Iterator[Metric]:
    """Median step with the exchange minus that without; noise can make a small one negative."""
    facts = observation.facts
    if {"step_exchanging_s", "step_alone_s"} <= facts.keys():
        exposed_s = facts["step_exchanging_s"] - facts["step_alone_s"]
        yield Metric(name="exposed_communication_s", value=exposed_s, unit="s", better="lower")


@metrics(
    "mixture-of-experts layers",
    expert_load="Rows computed by the busiest rank, relative to an even share",
    expert_capacity="Maximum token visits per expert and rank",
    dropped_fraction="Token visits dropped at full experts, on the rank with most",
    expert_cache_hit_fraction="Expert uses served from the device cache",
)
def expert_load(observation: Observation) -> Iterator[Metric]:
    """Load and dropped visits, each of the rank with most, and cache hits."""
    yield from fact(observation, "expert_load", "1", "lower")
    yield from fact(observation, "expert_capacity", "count")
    yield from fact(observation, "dropped_fraction", "fraction", "lower")
    yield from fact(observation, "expert_cache_hit_fraction", "fraction", "higher")


_PREFIX, _SUFFIX = "phase_", "_s"


@metrics(
    "mixture-of-experts layers",
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


@metrics(
    "cpu, cuda, xpu",
    peak_memory_bytes="Peak memory of tensors, on the rank with the highest peak",
    process_peak_memory_bytes="CPU: peak resident size of a process",
)
def peak_memory(observation: Observation) -> Iterator[Metric]:
    """Peak memory of tensors on any rank, and of a process."""
    yield from fact(observation, "peak_memory_bytes", "bytes", "lower")
    yield from fact(observation, "process_peak_memory_bytes", "bytes", "lower")
