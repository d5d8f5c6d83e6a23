"""Whole screens at the end of a session, as kept in ``screens/``."""

from __future__ import annotations

from typing import Any, Final

import pytest

from gpubench_plugin.compare.scaling import Families
from gpubench_plugin.core.records import Measurement, Metric, RankTimes, Work
from gpubench_plugin.reports.markup import plain
from gpubench_plugin.reports.side_by_side import scaling_lines
from gpubench_plugin.reports.terminal import summary_lines
from gpubench_plugin.reports.text import width
from tests.support.screens import assert_screen, in_ascii

TRAINING: Final = "benchmarks/training/test_resnet.py"
LANGUAGE: Final = "benchmarks/training/test_language_models.py"
MOE: Final = "benchmarks/distributed/test_moe.py"
NCCL: Final = "benchmarks/distributed/test_collectives.py"
FULL: Final = "measured on a CPU only with --measure.profile=full"
UNITS: Final = {
    "step_time_s": "s",
    "samples_per_s": "samples/s",
    "tokens_per_s": "tokens/s",
    "peak_memory_bytes": "bytes",
    "tflops": "TFLOP/s",
    "mfu": "fraction",
}


def benchmark(node_id: str, *, world_size: int = 1, **fields: Any) -> Measurement:
    """A benchmark; `step` with its half-width in percent, `own` the metrics its test has added."""
    step, half_width = fields.pop("step", (None, None))
    numbers: dict[str, float] = fields.pop("numbers", {})
    own: dict[str, tuple[float, str]] = fields.pop("own", {})
    metrics = {name: Metric(name=name, value=v, unit=u) for name, (v, u) in own.items()}
    if step is not None:
        numbers = {
            "step_time_s": step,
            "step_time_ci_low_s": step * (1 - half_width / 100),
            "step_time_ci_high_s": step * (1 + half_width / 100),
            **numbers,
        }
    for name, value in numbers.items():
        metrics[name] = Metric(name=name, value=value, unit=UNITS.get(name, ""))
        if name.endswith("_per_s") and "_ci_" not in name and "bytes" not in name:
            for end, factor in (("low", 0.99), ("high", 1.01)):
                bound = name.replace("_per_s", f"_ci_{end}_per_s")
                metrics[bound] = Metric(name=bound, value=value * factor, unit=UNITS[name])
    fields.setdefault("outcome", "measured" if step is not None else "skipped")
    fields.setdefault("params", {"world_size": str(world_size)})
    name = node_id.partition("::")[2]
    return Measurement(id=node_id, name=name, world_size=world_size, metrics=metrics, **fields)


def training(variant: str, step: float, half_width: float, **fields: Any) -> Measurement:
    """A training of a ResNet with all of the usual numbers."""
    numbers = {
        "samples_per_s": 32 / step,
        "tflops": 0.0112 / step,
        "peak_memory_bytes": 912.4 * 2**20,
    }
    node_id = f"{TRAINING}::test_resnet50_train[{variant}]"
    return benchmark(node_id, step=(step, half_width), numbers=numbers, **fields)


def one_run_with_doubts() -> list[Measurement]:
    """One rank, three precisions: doubts, notes, own metrics, failures, unmeasured variants."""
    full = [
        benchmark(
            f"{TRAINING}::test_resnet50_{kind}[contiguous-{precision}]",
            outcome="unsupported",
            reason=FULL,
        )
        for kind in ("train", "infer")
        for precision in ("fp16-true", "bf16-true", "amp")
    ]
    small = {"tflops": 4.06e-5, "peak_memory_bytes": 3.2e5}
    return [
        training("channels_last-fp32", 0.3147, 0.54),
        training("channels_last-amp", 0.1592, 0.9, flags=("contended", "outliers")),
        training("channels_last-bf16", 0.1633, 2.1, flags=("outliers",)),
        training("channels_last-compiled-bf16", 0.0911, 26.0, flags=("unsteady", "drifting")),
        *full,
        benchmark(
            f"{TRAINING}::test_resnet50_train[channels_last-compiled-fp16-true]",
            outcome="oom",
            reason="out of memory, requested 2.00 GiB, peak 3.10 GiB: OutOfMemoryError: CUDA out "
            "of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 3.50 GiB of "
            "which 412.00 MiB is free",
        ),
        benchmark(
            f"{LANGUAGE}::test_router[fp32]",
            step=(3.747e-4, 0.9),
            numbers={"tokens_per_s": 1.23e6, **small},
            own={"entropy": (1.25, "1"), "dropped": (0.031, "fraction"), "calls": (12.0, "count")},
        ),
        benchmark(
            f"{LANGUAGE}::test_router[amp]",
            step=(4.2e-4, 4.2),
            numbers={"tokens_per_s": 1.1e6, **small},
            own={"entropy": (1.31, "1"), "dropped": (0.002, "fraction"), "calls": (12.0, "count")},
            flags=("contended", "unsteady", "stalls"),
        ),
        benchmark(f"{LANGUAGE}::test_generation[fp32]", reason="not today"),
    ]


def suffix(ranks: int) -> str:
    return f"-ranks{ranks}" if ranks > 1 else ""


def gang_run() -> list[Measurement]:
    """1, 2 and 4 ranks: scaling, a slow rank, failures, too few devices, bandwidths."""
    times = dict.fromkeys(("min_s", "p5_s", "p95_s", "p99_s", "max_s", "total_s"), 1.0)
    families = Families()
    measurements = []
    for ranks, rate in ((1, 520.0), (2, 1010.0), (4, 1790.0)):
        lags = [1.0, 1.01, 1.12, 1.02][:ranks]
        measurements.append(
            benchmark(
                f"{TRAINING}::test_resnet50_train[channels_last-amp{suffix(ranks)}]",
                world_size=ranks,
                params={"precision": "amp", "world_size": str(ranks)},
                step=(64 * ranks / rate, 0.6),
                numbers={
                    "samples_per_s": rate,
                    "tflops": 0.0123 * rate,
                    "mfu": 0.0008 * rate / ranks,
                    "peak_memory_bytes": 9.1 * 2**30,
                },
                own={"communication": (0.07 * (ranks - 1), "fraction")},
                work=Work(samples=64 * ranks),
                ranks=tuple(
                    RankTimes(rank=rank, host="node-1", count=9, median_s=lag, **times)
                    for rank, lag in enumerate(lags)
                ),
                flags=("launch_bound",) if ranks == 1 else (),
            )
        )
    members = {}
    for measurement in measurements:
        members |= families.add(measurement)
    bandwidth = {"busbw_bytes_per_s": 1.837e11, "peak_memory_bytes": 2.0**31}
    hang = "rank 3 did not end: timed out after 600 s (measure.timeout_s); all others wait for it"
    return [
        *members.values(),
        *(
            benchmark(
                f"{TRAINING}::test_resnet50_train[contiguous-amp{suffix(ranks)}]", world_size=ranks
            )
            for ranks in (1, 2, 4)
        ),
        benchmark(
            f"{NCCL}::test_all_reduce[1GiB-ranks4]",
            world_size=4,
            step=(0.00877, 0.2),
            numbers=bandwidth,
        ),
        benchmark(
            f"{NCCL}::test_all_to_all[1GiB-ranks4]",
            world_size=4,
            outcome="hang",
            reason=hang,
            numbers={},
        ),
        benchmark(
            f"{NCCL}::test_broadcast[1GiB-ranks4]",
            world_size=4,
            outcome="mismatched_ranks",
            reason="rank 0 passed, rank 2 failed: ValueError: sizes differ: 4 and 5",
        ),
        *(
            benchmark(
                f"{MOE}::test_moe_layer[all-to-all-bf16-ranks{ranks}]",
                world_size=ranks,
                outcome="unsupported",
                reason=f"needs {ranks} devices; available: 4 (cuda:0 to cuda:3)",
            )
            for ranks in (8, 16)
        ),
    ]


RUNS: Final = {"doubts": one_run_with_doubts, "gang": gang_run}


@pytest.mark.parametrize("columns", [80, 120, 200])
@pytest.mark.parametrize("run", RUNS)
def test_screen(run: str, columns: int) -> None:
    """What a session prints at its end is as kept, and no line is too wide."""
    measurements = RUNS[run]()
    parts = summary_lines(measurements, columns), scaling_lines(measurements, columns)
    text = "\n".join("".join(f"{plain(line)}\n" for line in part) for part in parts if part)
    assert_screen(f"session-{run}-{columns}", text)


@pytest.mark.parametrize("run", RUNS)
def test_a_screen_in_ascii_is_as_wide(run: str) -> None:
    """Signs are spelt without moving the columns."""
    lines = [plain(line) for line in summary_lines(RUNS[run](), 120)]
    spelt = [in_ascii(line) for line in lines]
    assert all(line.isascii() for line in spelt)
    assert [*map(len, spelt)] == [*map(width, lines)]
