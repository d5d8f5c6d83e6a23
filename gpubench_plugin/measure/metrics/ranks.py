"""Metrics of ranks: pipelines, collectives, skew, exposed communication, experts, phases."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gpubench_plugin.flags import doubts
from gpubench_plugin.measure.metrics._plausibility import median_step_s
from gpubench_plugin.measure.metrics._rates import rate
from gpubench_plugin.measure.metrics.base import MetricSource
from gpubench_plugin.records import Metric

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpubench_plugin.records import Better, Observation


class Pipeline(MetricSource):
    """The speed-up over one process, beside the one that filling the pipeline leaves.

    M samples through w ranks of equal parts gain M·w/(M + w - 1) at best, as for the
    micro-batches of Huang et al. 2018 (https://arxiv.org/abs/1811.06965), section 2.3.

    A median in doubt has no speed-up: what is divided by a wrong number is wrong.
    """

    name = "pipeline"
    produces: ClassVar = {
        "one_process_s": "Time of one process for what the pipeline does, measured beside it",
        "speed_up": "That time over the pipeline's median",
        "ideal_speed_up": "The speed-up where sending takes no time: M·w/(M + w - 1)",
        "pipeline_efficiency": "The speed-up over the ideal one",
    }
    where = "pipelines of 2 ranks or more"

    def compute(self, seen: Observation) -> Iterator[Metric]:
        """From the facts ``one_process_s`` and ``ideal_speed_up``, where there are both."""
        alone_s, ideal = seen.facts.get("one_process_s"), seen.facts.get("ideal_speed_up")
        if not alone_s or not ideal:
            return
        yield Metric(name="one_process_s", value=alone_s, unit="s")
        yield Metric(name="ideal_speed_up", value=ideal, unit="1")
        if doubts(seen.samples.flags):
            return
        speed_up = alone_s / median_step_s(seen.samples)
        yield Metric(name="speed_up", value=speed_up, unit="1", better="higher")
        value = speed_up / ideal
        yield Metric(name="pipeline_efficiency", value=value, unit="fraction", better="higher")


class AlgorithmBandwidth(MetricSource):
    """The size of the message over the time of one collective.

    Source: https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md, whose time is the
    mean over the calls: here the length of all timed blocks, each the slowest rank's, over the
    timed calls.
    """

    name = "algbw"
    produces: ClassVar = {
        "algbw_bytes_per_s": "Size of the message over the time of a collective",
        "algbw_ci_low_bytes_per_s": "Lower end of that rate's confidence interval",
        "algbw_ci_high_bytes_per_s": "Upper end of that rate's confidence interval",
    }
    where = "collectives"

    def compute(self, seen: Observation) -> Iterator[Metric]:
        """The fact ``collective_bytes`` per call, as a rate."""
        if "collective_bytes" in seen.facts:
            yield from rate("algbw_bytes_per_s", seen.facts["collective_bytes"], "bytes/s", seen)


class BusBandwidth(MetricSource):
    """Algorithm bandwidth times a factor of the collective and the number of ranks.

    It is what the busiest link carried, so that it can be compared with the hardware's peak and
    between numbers of ranks. Source:
    https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
    """

    name = "busbw"
    produces: ClassVar = {
        "busbw_bytes_per_s": "The same times the factor of the collective and the ranks",
        "busbw_ci_low_bytes_per_s": "Lower end of that rate's confidence interval",
        "busbw_ci_high_bytes_per_s": "Upper end of that rate's confidence interval",
    }
    where = "collectives"

    def compute(self, seen: Observation) -> Iterator[Metric]:
        """The facts ``collective_bytes`` times ``bus_factor`` per call, as a rate."""
        if {"collective_bytes", "bus_factor"} <= seen.facts.keys():
            on_bus = seen.facts["collective_bytes"] * seen.facts["bus_factor"]
            yield from rate("busbw_bytes_per_s", on_bus, "bytes/s", seen)


class RankSkew(MetricSource):
    """The difference between the slowest and the fastest rank."""

    name = "rank-skew"
    produces: ClassVar = {
        "rank_skew_s": "Slowest rank's median less the fastest rank's",
    }
    where = "2 ranks or more"

    def compute(self, seen: Observation) -> Iterator[Metric]:
        """The range of the ranks' median rounds, where there are several ranks."""
        if len(seen.ranks) > 1:
            medians = [rank.median_s for rank in seen.ranks]
            skew_s = max(medians) - min(medians)
            yield Metric(name="rank_skew_s", value=skew_s, unit="s", better="lower")


class ExposedCommunication(MetricSource):
    """What the exchange of gradients adds to a step; noise can make a small one negative."""

    name = "exposed-communication"
    produces: ClassVar = {
        "exposed_communication_s": "What the exchange of gradients adds to the median step",
    }
    where = "benchmarks of the fixture exposed_communication"

    def compute(self, seen: Observation) -> Iterator[Metric]:
        """The difference of the slowest ranks' medians, where both kinds of steps were timed."""
        if {"step_exchanging_s", "step_alone_s"} <= seen.facts.keys():
            exposed = seen.facts["step_exchanging_s"] - seen.facts["step_alone_s"]
            yield Metric(name="exposed_communication_s", value=exposed, unit="s", better="lower")


_METRICS: tuple[tuple[str, str, Better], ...] = (
    ("expert_load", "1", "lower"),
    ("expert_capacity", "count", "none"),
    ("dropped_fraction", "fraction", "lower"),
    ("expert_cache_hit_fraction", "fraction", "higher"),
)


class ExpertLoad(MetricSource):
    """Of several ranks the largest of each: the busiest rank's load, the most that one dropped."""

    name = "expert-load"
    produces: ClassVar = {
        "expert_load": "Rows that the busiest rank computes, over those of an even share",
        "expert_capacity": "Visits of a rank's tokens that an expert takes at most",
        "dropped_fraction": "Visits dropped because an expert was full, on the rank with most",
        "expert_cache_hit_fraction": "Uses of an expert that was on the device already",
    }
    where = "mixture-of-experts layers"

    def compute(self, seen: Observation) -> Iterator[Metric]:
        """The facts of these names."""
        for name, unit, better in _METRICS:
            if name in seen.facts:
                yield Metric(name=name, value=seen.facts[name], unit=unit, better=better)


_PREFIX, _SUFFIX = "phase_", "_s"


class Phases(MetricSource):
    """How long each phase of a forward pass takes, and its share of all of them.

    They are timed one by one in calls of their own: their sum is not the step's time. Of several
    ranks each is the mean, so that a share is one of the time that all ranks spend.
    """

    name = "phases"
    produces: ClassVar = {
        "phase_experts_s": "Forward time of a phase, here experts; each has its phase_<name>_s",
        "phase_experts_share": "That over the sum of all phases; each has its phase_<name>_share",
    }
    where = "mixture-of-experts layers"

    def compute(self, seen: Observation) -> Iterator[Metric]:
        """The facts ``phase_<name>_s``, each also as a fraction of their sum."""
        times = {
            name.removeprefix(_PREFIX).removesuffix(_SUFFIX): seconds
            for name, seconds in seen.facts.items()
            if name.startswith(_PREFIX) and name.endswith(_SUFFIX)
        }
        total = sum(times.values())
        for name, seconds in times.items():
            yield Metric(name=f"phase_{name}_s", value=seconds, unit="s", better="lower")
            if total > 0:
                yield Metric(name=f"phase_{name}_share", value=seconds / total, unit="fraction")
