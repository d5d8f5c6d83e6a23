"""Metrics of the GPU's state: clocks, temperature, throttling, power and energy."""

from __future__ import annotations

from collections.abc import Iterator

from gpubench_plugin.core.records import Metric, Observation
from gpubench_plugin.measure.metrics._plausibility import timed_s
from gpubench_plugin.measure.metrics.base import fact, metrics

# Share of the time that timed calls must fill, or the energy is also that of other work: setups,
# writes over the cache.
_TIMED_SHARE = 0.9


@metrics(
    "NVIDIA GPUs, with pynvml",
    sm_clock_mhz="Median clock of the multiprocessors under load",
    sm_clock_min_mhz="Lowest clock of the multiprocessors under load",
    memory_clock_mhz="Median clock of the GPU's memory under load",
    temperature_c="Highest temperature of the GPU at either end of the timed calls",
    throttled_fraction="Share of the timed calls in which the GPU was slowed down",
)
def device_state(observation: Observation) -> Iterator[Metric]:
    """Clocks, temperature and throttling; of several ranks those of the slowest or hottest GPU."""
    for name, unit in (
        ("sm_clock_mhz", "MHz"),
        ("sm_clock_min_mhz", "MHz"),
        ("memory_clock_mhz", "MHz"),
        ("temperature_c", "°C"),
        ("throttled_fraction", "fraction"),
    ):
        yield from fact(observation, name, unit)


@metrics(
    "NVIDIA GPUs, with pynvml, from two seconds on",
    power_w="Mean power of the GPU, of several ranks the highest",
    energy_j_per_sample="Energy of all GPUs over samples",
)
def energy(observation: Observation) -> Iterator[Metric]:
    """Energy between the first and the last timed call, the time between blocks included.

    None per sample where other work than the timed calls took over a tenth of that time.
    """
    yield from fact(observation, "power_w", "W")
    facts, samples = observation.facts, observation.work.samples
    if "energy_j" not in facts or samples is None:
        return
    if timed_s(observation.samples) >= _TIMED_SHARE * facts["energy_window_s"]:
        per_sample = facts["energy_j"] / (samples * observation.samples.calls)
        yield Metric(name="energy_j_per_sample", value=per_sample, unit="J/sample", better="lower")
