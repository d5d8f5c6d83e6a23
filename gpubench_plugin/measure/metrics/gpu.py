"""Metrics of the GPU's state: clocks, temperature, throttling, power and energy."""

from __future__ import annotations

from collections.abc import Iterator

from gpubench_plugin.core.records import Metric, Observation
from gpubench_plugin.measure.metrics.base import Fact, facts, metrics
from gpubench_plugin.measure.metrics.throughput import timed_s

# Share of the time that timed calls must fill, or the energy is also that of other work: setups,
# writes over the cache.
_TIMED_SHARE = 0.9


@facts(
    "NVIDIA GPUs, with pynvml",
    sm_clock_mhz=Fact("Median clock of the multiprocessors under load", "MHz"),
    sm_clock_min_mhz=Fact("Lowest clock of the multiprocessors under load", "MHz"),
    memory_clock_mhz=Fact("Median clock of the GPU's memory under load", "MHz"),
    temperature_c=Fact("Highest temperature of the GPU at either end of the timed calls", "°C"),
    throttled_fraction=Fact(
        "Share of the timed calls in which the GPU was slowed down", "fraction"
    ),
)
def device_state() -> None:
    """Clocks, temperature and throttling; of several ranks those of the slowest or hottest GPU.

    Clocks are read once per block while the device is at work. Only temperature and power count as
    slowing a GPU down.
    """


@facts(
    "NVIDIA GPUs, with pynvml, from two seconds on",
    power_w=Fact("Mean power of the GPU, of several ranks the highest", "W"),
)
def power() -> None:
    """Mean power between the first and the last timed call, the time between blocks included."""


@metrics(
    "NVIDIA GPUs, with pynvml, from two seconds on",
    needs="energy_j",
    energy_j_per_sample="Energy of all GPUs over samples",
)
def energy(observation: Observation) -> Iterator[Metric]:
    """Energy between the first and the last timed call over the samples of all timed calls.

    None where other work than the timed calls took over a tenth of that time. It is not gated by
    default.
    """
    facts, samples = observation.facts, observation.work.samples
    if samples is None or timed_s(observation.samples) < _TIMED_SHARE * facts["energy_window_s"]:
        return
    per_sample = facts["energy_j"] / (samples * observation.samples.calls)
    yield Metric(name="energy_j_per_sample", value=per_sample, unit="J/sample", better="lower")
