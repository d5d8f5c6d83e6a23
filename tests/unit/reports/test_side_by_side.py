"""Devices and precisions side by side, below the table."""

from __future__ import annotations

from typing import Any

import pytest

from gpubench_plugin.core.records import Measurement, Metric, Work
from gpubench_plugin.reports.markup import plain
from gpubench_plugin.reports.side_by_side import side_by_side_lines
from gpubench_plugin.reports.text import width

STEPS_MS = {("cpu", "fp32"): 41.2, ("cpu", "bf16"): 33.0, ("cuda", "fp32"): 1.84}


def benchmark(device: str, precision: str, step_s: float, **fields: Any) -> Measurement:
    """A measurement whose interval is ±1%, of 8 samples per call."""
    samples, name = fields.pop("samples", 8.0), fields.pop("test", "train")
    numbers = {
        "step_time_s": step_s,
        "step_time_ci_low_s": 0.99 * step_s,
        "step_time_ci_high_s": 1.01 * step_s,
        "samples_per_s": samples / step_s,
        "samples_ci_low_per_s": 0.99 * samples / step_s,
        "samples_ci_high_per_s": 1.01 * samples / step_s,
    }
    identity = f"test_{name}[{device}-{precision}]"
    attributes = {
        "id": f"test_it.py::{identity}",
        "name": identity,
        "outcome": "measured",
        "params": {"torch_device": device, "precision": precision, "world_size": "1"},
        **fields,
    }
    metrics = {key: Metric(name=key, value=value, unit="") for key, value in numbers.items()}
    return Measurement(**attributes, world_size=1, metrics=metrics, work=Work(samples=samples))


def rendered(*measurements: Measurement, columns: int = 120) -> list[str]:
    return [plain(line) for line in side_by_side_lines(measurements, columns)]


MEASURED = [benchmark(*values, ms / 1000) for values, ms in STEPS_MS.items()]
EVALUATED = [
    benchmark("cpu", "fp32", 0.011, test="evaluate"),
    benchmark("cuda", "fp32", 0.0021, test="evaluate", flags=("drifting",)),
]


def test_there_is_a_table_per_parameter() -> None:
    """A row per benchmark that has two values, relative to the first value of the session."""
    assert rendered(*MEASURED, *EVALUATED) == [
        "by device                 cpu                  cuda",
        "train[fp32]     41.2 ms ±1.0%  1.00x  1.84 ms ±1.0%  22.4x",
        "evaluate[fp32]  11.0 ms ±1.0%  1.00x      ≈ 2.10 ms    ≈5x",
        "",
        "by precision           fp32                   bf16",
        "train[cpu]    41.2 ms ±1.0%  1.00x  33.00 ms ±1.0%  1.25x",
    ]


@pytest.mark.parametrize("columns", [80, 120, 200])
def test_no_line_is_wider_than_the_terminal(columns: int) -> None:
    """Intervals give way first, then the numbers themselves; what is relative stays."""
    several = [
        benchmark("cuda", f"precision{n}", 0.01 * n, test="train_with_a_long_name" * 2)
        for n in range(1, 9)
    ]
    lines = rendered(*several, columns=columns)
    assert all(width(line) <= columns for line in lines)
    assert ("precision2" in lines[0], "0.500x" in lines[1]) == (True, True)


def test_one_value_has_no_table() -> None:
    """Neither has a benchmark whose others were not measured."""
    failed = benchmark("cuda", "fp32", 0.01, outcome="failed")
    assert rendered(MEASURED[0], failed, benchmark("cuda", "bf16", 0.1, test="other")) == []
    assert rendered() == []


def test_different_work_is_compared_by_throughput() -> None:
    """Ten times the samples in twice the time are five times as fast."""
    lines = rendered(benchmark("cpu", "fp32", 0.01), benchmark("cuda", "fp32", 0.02, samples=80.0))
    name, *cells = lines[1].split()
    assert name == "train[fp32]"
    assert cells[:4] == ["800.0", "samples/s", "±1.0%", "1.00x"]
    assert cells[4:] == ["4.000k", "samples/s", "±1.0%", "5.00x"]


def test_a_benchmark_without_the_first_value_has_nothing_relative() -> None:
    """Its numbers stand there all the same; no other value takes the place of the reference."""
    others = [benchmark(device, "fp32", 0.01, test="other") for device in ("cuda", "mps")]
    lines = rendered(*EVALUATED, *others)
    assert lines[2].split()[0] == "other[fp32]"
    assert "x" not in lines[2]
