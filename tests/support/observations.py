"""Observations of a measurement, made up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpubench_plugin.core.records import Observation, RankTimes, Samples, Work


def sampled(**changes: Any) -> Samples:
    """Ten timed calls of 0.1 to 1.0 s, in two blocks, after a warm-up of three."""
    usual = Samples(
        timer="a clock",
        durations_s=(0.3, 0.1, 0.2, 0.5, 0.4, 0.7, 0.6, 0.9, 0.8, 1.0),
        block_s=(1.6, 4.4),
        block_calls=(5, 5),
        first_step_s=3.0,
        warmup_s=(0.5, 0.25, 0.25),
        warmup_calls=3,
    )
    return replace(usual, **changes)


def timed(rank: int, **changes: Any) -> RankTimes:
    """The times of a rank with the usual samples."""
    usual = RankTimes(
        rank=rank,
        host="a host",
        count=10,
        min_s=0.1,
        p5_s=0.145,
        median_s=0.55,
        p95_s=0.955,
        p99_s=0.991,
        max_s=1.0,
        total_s=6.0,
    )
    return replace(usual, **changes)


def observe(**changes: Any) -> Observation:
    """An observation of one rank on a known device; what is given replaces the usual."""
    usual = Observation(
        samples=changes.pop("samples", sampled()),
        work=Work(),
        device="cuda",
        device_name="NVIDIA A100-SXM4-80GB",
        precision="bf16",
        world_size=1,
    )
    return replace(usual, **changes)


def everything() -> Observation:
    """An observation to which every metric applies."""
    return observe(
        samples=sampled(
            durations_s=sampled().durations_s * 10, block_s=(5.0, 6.0) * 5, block_calls=(10,) * 10
        ),
        ranks=(timed(0), timed(1, median_s=0.1)),
        work=Work(samples=8, tokens=1024, bytes=4096, flops=1e12),
        world_size=2,
        facts={
            "peak_memory_bytes": 2.0**30,
            "process_peak_memory_bytes": 2.0**31,
            "skipped_steps": 1.0,
            "graph_breaks": 1.0,
            "recompiles": 1.0,
            "compiled_graphs": 2.0,
            "host_syncs": 1.0,
            "device_to_host_bytes": 4.0,
            "kernels_per_step": 12.0,
            "data_wait_s": 0.6,
            "loss_first": 2.3,
            "loss_error": 0.001,
            "gradient_norm_error": 0.01,
            "loss_last": 0.1,
            "steps_to_target": 60.0,
            "epochs_to_target": 2.5,
            "test_loss": 0.3,
            "test_accuracy": 0.97,
            "parity_error": 0.01,
            "compiled": 1.0,
            "collective_bytes": 4096.0,
            "one_process_s": 0.9,
            "ideal_speed_up": 1.6,
            "bus_factor": 1.5,
            "first_tokens": 1.0,
            "output_tokens": 1.0,
            "phase_experts_s": 0.2,
            "expert_load": 1.2,
            "expert_capacity": 64.0,
            "dropped_fraction": 0.1,
            "expert_cache_hit_fraction": 0.9,
            "step_exchanging_s": 0.3,
            "step_alone_s": 0.2,
            "iterations_per_call": 1.0,
            "sm_clock_mhz": 1755.0,
            "sm_clock_min_mhz": 1690.0,
            "memory_clock_mhz": 3201.0,
            "temperature_c": 64.0,
            "throttled_fraction": 0.01,
            "power_w": 650.0,
            "energy_j": 1300.0,
            "energy_window_s": 56.0,
            "variant_eager_step_time_s": 0.6,
            "variant_eager_step_time_ci_low_s": 0.5,
            "variant_eager_step_time_ci_high_s": 0.7,
            "variant_eager_rounds": 100.0,
            "speed_up_compiled": 1.2,
            "speed_up_compiled_ci_low": 1.1,
            "speed_up_compiled_ci_high": 1.3,
        },
    )
