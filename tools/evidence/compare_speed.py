"""How long `gpubench compare` takes for two runs of 1,000 benchmarks, imports aside.

    python tools/evidence/compare_speed.py [benchmarks]

Prints the seconds of each stage: the best of five, since nothing but noise is added to the best.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from gpubench_plugin.compare.comparison import compare_runs
from gpubench_plugin.config.sections import Configuration, ModelSection
from gpubench_plugin.core.catalog import choices, load
from gpubench_plugin.core.records import Measurement, Metric, RunRecord
from gpubench_plugin.core.verdicts import Comparison
from gpubench_plugin.environment.system_facts import collect
from gpubench_plugin.reports.formats.base import Page
from gpubench_plugin.results import verdicts  # noqa: F401  # imports do not count
from gpubench_plugin.results.sources import load_run  # imports do not count
from gpubench_plugin.results.summary import write_summary  # imports do not count

REPEATS = 5
METRICS = (
    *(f"step_time_{name}" for name in ("s", "min_s", "mean_s", "max_s", "p95_s", "p99_s")),
    *("step_time_ci_low_s", "step_time_ci_high_s", "samples_per_s", "first_step_s", "warmup_s"),
    *("peak_memory_bytes", "rounds", "warmup_iterations", "tflops", "mfu"),
)

CONFIGURATION = Configuration(model=ModelSection(name="mlp")).model_dump(mode="json")


def measured(number: int, factor: float) -> Measurement:
    """A benchmark as a real one is recorded, `factor` slower."""
    return Measurement(
        id=f"benchmarks/training/test_suite.py::test_number_{number}[amp-ws1]",
        name=f"test_number_{number}[amp-ws1]",
        params={"precision": "amp", "world_size": "1"},
        world_size=1,
        outcome="measured",
        configuration=CONFIGURATION,
        settings={"precision.name": "amp", "measure.max_time_s": 0.5},
        timer="perf_counter",
        metrics={
            name: Metric(
                name=name, value=0.01 * factor * (1 + number % 7), unit="s", better="lower"
            )
            for name in METRICS
        },
    )


def write(folder: Path, run_id: str, benchmarks: int, factor: float) -> Path:
    """A run directory's summary."""
    path = folder / "default" / run_id
    path.mkdir(parents=True)
    record = RunRecord(
        run_id=run_id,
        experiment="default",
        status="complete",
        started="2026-01-31T12:00:00.000000Z",
        finished="2026-01-31T12:00:09.500000Z",
        command=("benchmarks",),
        environment=collect(Path.cwd()),
        benchmarks=tuple(measured(i, factor + 0.1 * (i % 11 == 0)) for i in range(benchmarks)),
    )
    write_summary(path / "summary.json", record)
    return path / "summary.json"


def best(action: Callable[[], Any]) -> tuple[float, Any]:
    """The shortest of some repeats in seconds, and what came out."""
    times = []
    for _ in range(REPEATS):
        before = time.perf_counter()
        found = action()
        times.append(time.perf_counter() - before)
    return min(times), found


def rendered(form: Any, comparison: Comparison) -> str:
    """The comparison in that form; each time anew, nothing is kept from the time before."""
    return "".join(form([replace(comparison)], Page()))


def main(benchmarks: int) -> None:
    """Print how long comparing takes, for that many benchmarks."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        texts = [
            str(write(folder, f"20260131T12000{i}Z_run_00000{i}", benchmarks, 1 + i / 50))
            for i in range(2)
        ]
        reading, runs = best(
            lambda: [load_run(text, results_dir=folder, cwd=folder) for text in texts]
        )
    judging, comparison = best(lambda: compare_runs(*runs))
    total = reading + judging
    print(
        f"{benchmarks} benchmarks, {len(METRICS)} metrics each, {len(comparison.verdicts)} verdicts"
    )
    print(f"reading two runs   {reading:.3f} s")
    print(f"judging            {judging:.3f} s")
    slowest = 0.0
    for kind in choices("formats"):
        form = load("formats", kind)
        rendering, _ = best(partial(rendered, form, comparison))
        slowest = max(slowest, rendering)
        print(f"as {kind:16}{rendering:.3f} s")
    print(f"in all, at most    {total + slowest:.3f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
