"""What pytest-benchmark has measured, as an observation of ours."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpubench_plugin.records import Observation, Samples, Work
from gpubench_plugin.results.pytest_benchmark import thinned

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpubench_plugin.environment.devices import Device
    from gpubench_plugin.results.pytest_benchmark import Recorded


def observation_of(recorded: Recorded, device: Device, facts: Mapping[str, float]) -> Observation:
    """The observation of one rank; a round of pytest-benchmark's is one here too.

    What came before the timed rounds (calibration, warm-up) pytest-benchmark does not tell.
    """
    durations = recorded.durations_s
    samples = Samples(
        timer=recorded.timer,
        durations_s=durations,
        calls_per_duration=recorded.iterations,
        block_s=(sum(durations) * recorded.iterations,),
        block_calls=(len(durations) * recorded.iterations,),
        first_step_s=None,
        warmup_s=(),
        warmup_calls=0,
    )
    return Observation(
        samples=samples,
        work=Work(),
        device=device.type,
        device_name=device.model,
        precision="",
        world_size=1,
        facts=facts,
    )


def kept(samples: Samples) -> Samples:
    """The samples to record: of very many as many as pytest-benchmark's own files get of ours.

    They have the same extremes and the same distribution; the metrics are those of all.
    """
    fewer = tuple(thinned(samples.durations_s))
    if len(fewer) == len(samples.durations_s):
        return samples
    return replace(samples, durations_s=fewer, reduced_from=samples.timing)
