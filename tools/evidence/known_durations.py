"""Steps of known length, measured by gpubench and others, idle and beside busy processes.

    pip install --group evidence
    python tools/evidence/known_durations.py [--repeats 3]

A step of *20 ns* is a call of a function that does nothing; its true length is that of a call in a
long row of calls, taken while nothing else runs. The others wait in a loop until the clock says
that 2 µs, 200 µs or 20 ms are over; theirs is found in the same way. Beside *busy* processes, one
for each processor, a step still needs no longer; what a harness says then shows what it takes for
the step and what for its neighbours.

Every harness runs as its documentation shows it, in a fresh process: gpubench in
``measure.profile=full`` and its median, pytest-benchmark's median, torch's
``Timer.blocked_autorange`` and its median, pyperf's mean as its command prints it. The table goes
into ``docs/evidence/known-durations.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns

sys.path.append(str(Path(__file__).resolve().parents[2]))

from tools.evidence import pages

SPINS_S: Mapping[str, float] = {"20 ns": 0.0, "2 µs": 2e-6, "200 µs": 2e-4, "20 ms": 2e-2}

STEP = """
from time import perf_counter

SPIN_S = {spin_s!r}

if SPIN_S:
    def step():
        end = perf_counter() + SPIN_S
        while perf_counter() < end:
            pass
else:
    def step():
        pass
"""

GPUBENCH = """
from step import step

def test_step(gpubench):
    gpubench(step)
"""

PYTEST_BENCHMARK = """
from step import step

def test_step(benchmark):
    benchmark(step)
"""

TORCH = """
from step import step
from torch.utils.benchmark import Timer

print(Timer("step()", globals={"step": step}).blocked_autorange().median)
"""

PYPERF = """
import pyperf
from step import step

pyperf.Runner().bench_func("step", step)
"""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What a harness says of a step, in seconds, and what it says beside that."""

    value_s: float
    remarks: str = ""


def gpubench(folder: Path) -> Reading:
    """The median of gpubench, its half-width and its flags."""
    test = folder / "test_gpubench.py"
    test.write_text(GPUBENCH, "utf-8")
    results = tempfile.mkdtemp(dir=folder)
    _run(
        *("-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(folder), str(test)),
        *("-p", "no:cacheprovider", f"--gpubench-results-dir={results}"),
        "--measure.profile=full",
        cwd=folder,
    )
    (summary,) = Path(results).rglob("summary.json")
    (benchmark,) = json.loads(summary.read_text("utf-8"))["benchmarks"]
    metrics = {name: metric["value"] for name, metric in benchmark["metrics"].items()}
    median_s = metrics["step_time_s"]
    known = "no interval"  # rounds that depend on each other may be too few to tell one
    if "step_time_ci_low_s" in metrics:
        half_s = (metrics["step_time_ci_high_s"] - metrics["step_time_ci_low_s"]) / 2
        known = f"±{half_s / median_s:.1%}"
    return Reading(value_s=median_s, remarks=", ".join([known, *benchmark["flags"]]))


def pytest_benchmark(folder: Path) -> Reading:
    """The median of pytest-benchmark."""
    test, out = folder / "test_benchmark.py", folder / "benchmark.json"
    test.write_text(PYTEST_BENCHMARK, "utf-8")
    _run(
        *("-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(folder), str(test)),
        *("-p", "no:gpubench", "-p", "no:cacheprovider", f"--benchmark-json={out}"),
        cwd=folder,
    )
    (benchmark,) = json.loads(out.read_text("utf-8"))["benchmarks"]
    return Reading(value_s=benchmark["stats"]["median"])


def torch_timer(folder: Path) -> Reading:
    """The median of torch's timer."""
    script = folder / "torch_timer.py"
    script.write_text(TORCH, "utf-8")
    return Reading(value_s=float(_run(str(script), cwd=folder)))


def pyperf(folder: Path) -> Reading:
    """The mean of pyperf with the standard deviation beside it: what its command prints."""
    script, out = folder / "run_pyperf.py", folder / "pyperf.json"
    out.unlink(missing_ok=True)
    script.write_text(PYPERF, "utf-8")
    _run(str(script), "--fast", "--quiet", "-o", str(out), cwd=folder)
    (benchmark,) = json.loads(out.read_text("utf-8"))["benchmarks"]
    values = [value for run in benchmark["runs"] for value in run.get("values", ())]
    mean_s = statistics.fmean(values)
    spread = statistics.stdev(values) / mean_s
    return Reading(value_s=mean_s, remarks=f"standard deviation {spread:.1%}")


HARNESSES: Mapping[str, Callable[[Path], Reading]] = {
    "gpubench": gpubench,
    "pytest-benchmark": pytest_benchmark,
    "torch Timer": torch_timer,
    "pyperf": pyperf,
}


def truth_s(spin_s: float) -> float:
    """Seconds of a call in a row of calls, the shortest of several rows: nothing else may run."""
    namespace: dict[str, Callable[..., None]] = {}
    calls = 2000 if spin_s == 0 else max(1, round(0.02 / spin_s))
    exec(STEP.format(spin_s=spin_s), namespace)
    exec("def row(step):\n" + "    step()\n" * calls, namespace)
    row, step = namespace["row"], namespace["step"]
    lengths = []
    for _ in range(20):
        start = perf_counter_ns()
        row(step)
        lengths.append(perf_counter_ns() - start)
    return min(lengths) / calls * 1e-9


def readings(repeats: int, truths: Mapping[str, float]) -> Iterator[tuple[str, str, list[Reading]]]:
    """For every step and harness its readings; harnesses take turns."""
    for name, spin_s in SPINS_S.items():
        with tempfile.TemporaryDirectory() as path:
            folder = Path(path)
            (folder / "step.py").write_text(STEP.format(spin_s=spin_s), "utf-8")
            turns = [
                {harness: read(folder) for harness, read in HARNESSES.items()}
                for _ in range(repeats)
            ]
        for harness in HARNESSES:
            repeated = [turn[harness] for turn in turns]
            print(name, harness, _errors(repeated, truths[name]), _remarks(repeated), flush=True)
            yield name, harness, repeated


def table(rows: list[tuple[str, str, list[Reading]]], truths: Mapping[str, float]) -> str:
    """The readings' errors by step and harness, in Markdown."""
    return pages.markdown(
        ("Step", "Truth", "Harness", "Error", "Said beside it"),
        [
            (
                name,
                _time(truths[name]),
                harness,
                _errors(repeated, truths[name]),
                _remarks(repeated),
            )
            for name, harness, repeated in rows
        ],
    )


def _errors(repeated: list[Reading], truth: float) -> str:
    return ", ".join(f"{reading.value_s / truth - 1:+.1%}" for reading in repeated)


def _remarks(repeated: list[Reading]) -> str:
    return "; ".join(reading.remarks for reading in repeated if reading.remarks)


def _time(seconds: float) -> str:
    unit, scale = next(
        (unit, scale)
        for unit, scale in (("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))
        if seconds >= scale
    )
    return f"{seconds / scale:.4g} {unit}"


def _run(*arguments: str, cwd: Path) -> str:
    """Standard output of this Python with the `arguments`; what fails ends everything."""
    environment = {**os.environ, "PYTHONPATH": str(cwd)}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)}\n{done.stdout}{done.stderr}")
    return done.stdout


def main() -> int:
    """Measure idle, then beside busy processes, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=3, help="turns of every harness (3)")
    repeats = parser.parse_args().repeats
    truths = {
        name: statistics.median(truth_s(spin_s) for _ in range(5))
        for name, spin_s in SPINS_S.items()
    }
    processors = len(os.sched_getaffinity(0))
    idle = table(list(readings(repeats, truths)), truths)
    with pages.busy_processes(processors):
        busy = table(list(readings(repeats, truths)), truths)
    pages.save(
        "known-durations.md",
        "# Steps of known length\n\n"
        f"Written by `python tools/evidence/known_durations.py --repeats={repeats}`, whose\n"
        "docstring says what is measured and how. An error is a reading against the truth.\n"
        f"Python {platform.python_version()}, {platform.machine()}, {processors} processors.\n",
        f"## Nothing else runs\n\n{idle}",
        f"## Beside {processors} busy processes\n\n{busy}",
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
