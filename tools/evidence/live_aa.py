"""``gpubench ab`` on this machine: the code against itself, and against a copy that is 10 % slower.

    python tools/evidence/live_aa.py [--runs 10] [--pairs 15] [--slow-runs 1] [--max-time 0.5]

Both sides are copies of this checkout in a temporary folder. *A/A*: the copies are equal, and no
benchmark may be regressed. *Slower*: the head's copy does 10 % more in each step of the control and
mlp benchmarks, and all of these must be regressed, or inconclusive where the launch noise is above
4 %, never unchanged. The exit code is 1 if that does not hold.

What is added is work, not waiting. ``test_spin`` and ``test_sleep`` last 10 % longer by their own
definition. The steps of mlp add up as many numbers in Python as take a tenth of the step: how many
is found before anything is compared, from the median of three launches, and printed. (On a GPU the
host's work would hide behind the device's: this is for CPUs.) ``test_noop`` stays as it is.

*noise* is that of one launch: the standard deviation of the pairs' log ratios, over the root of 2.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import timeit
from dataclasses import dataclass
from pathlib import Path
from statistics import median, stdev
from typing import Any

from gpubench_plugin.cli.ab import State
from gpubench_plugin.results import RunDirectory, run_in

ROOT = Path(__file__).parents[2]
SLOWDOWN = 0.10
LOUD = 0.04
MLP = ("training/test_mlp.py", "inference/test_mlp.py")
CONTROL = "control/test_control.py"
PLAIN = "not (compiled or accumulated or fsdp2)"
"""Variants add minutes, and nothing to what is asked here."""

SLOWED = ("test_spin", "test_sleep", "test_mlp_train", "test_mlp_infer")
CALIBRATIONS = 3
MAIN = "import sys; from gpubench_plugin.cli.main import main; sys.exit(main())"

STEP = re.compile(r"gpubench\((\w+)\)$", re.MULTILINE)
MORE = """

def _more(subject, numbers):
    step = subject.step

    def both():
        step()
        sum(range(numbers))

    subject.step = both
    return subject
"""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One verdict of one comparison; numbers are fractions."""

    name: str
    metric: str
    verdict: str
    effect: float | None
    noise: float | None
    pairs: int
    reason: str


def copy_of(root: Path, folder: Path) -> Path:
    """What git knows of the checkout, uncommitted changes included, in `folder`."""
    listed = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (root / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, folder / name)
    return folder


def slow_down(folder: Path, numbers: dict[str, int]) -> None:
    """Put the slowdown into the copy in `folder`; `numbers` by file of mlp."""
    control = folder / "benchmarks" / CONTROL
    text = control.read_text()
    for name, value in (("SLEEP_S", "1e-3"), ("SPIN_S", "1e-4")):
        assert f"{name} = {value}" in text, f"{control} has no {name} = {value}"
        text = text.replace(f"{name} = {value}", f"{name} = {value} * {1 + SLOWDOWN}")
    control.write_text(text)
    for file, count in numbers.items():
        add_work(folder / "benchmarks" / file, count)


def add_work(file: Path, numbers: int) -> None:
    """Have each step of the benchmark in `file` add up so many numbers, too."""
    text, found = STEP.subn(rf"gpubench(_more(\1, {numbers}))", file.read_text())
    assert found == 1, f"{file} has {found} steps"
    file.write_text(text + MORE)


def calibrated(folder: Path, max_time_s: float) -> dict[str, int]:
    """By file of mlp: how many numbers to add up takes a tenth of its step."""
    times: dict[str, list[float]] = {file: [] for file in MLP}
    files = [f"benchmarks/{file}" for file in MLP]
    tree = copy_of(ROOT, folder / "calibration")
    for number in range(CALIBRATIONS):
        results = folder / f"calibration-{number}"
        command = [sys.executable, "-m", "pytest", "-q", *files, "-k", PLAIN]
        command += [
            "--registry=none",
            f"--results-dir={results}",
            f"--measure.max_time_s={max_time_s}",
        ]
        subprocess.run(
            command,
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree)},
            check=True,
            stdout=subprocess.DEVNULL,
        )
        (summary,) = results.glob("*/*/summary.json")
        for benchmark in json.loads(summary.read_text())["benchmarks"]:
            file = benchmark["id"].partition("::")[0].removeprefix("benchmarks/")
            times[file].append(benchmark["metrics"]["step_time_min_s"]["value"])
    many = 1_000
    number_s = min(timeit.repeat(lambda: sum(range(many)), number=10, repeat=300)) / (10 * many)
    numbers = {}
    for file, seconds in times.items():
        numbers[file] = max(1, round(SLOWDOWN * median(seconds) / number_s))
        print(f"{file}: a step takes {1e6 * median(seconds):.1f} µs, +{numbers[file]} numbers")
    return numbers


def compare(base: Path, head: Path, results: Path, arguments: list[str], pairs: int) -> list[Row]:
    """The verdicts of one comparison."""
    options = [f"--base={base}", f"--head={head}", f"--results-dir={results}", f"--pairs={pairs}"]
    done = subprocess.run(
        [sys.executable, "-c", MAIN, "ab", *options, "--format=json", "--", *arguments],
        cwd=base,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode not in {0, 1}:
        sys.exit(f"gpubench ab ended with exit code {done.returncode}")
    (folder,) = results.glob("ab/*/state.json")
    noise = launch_noise(State.read(folder.parent))
    return [_row(verdict, noise) for verdict in json.loads(done.stdout)["benchmarks"]]


def _row(verdict: dict[str, Any], noise: dict[str, float]) -> Row:
    timed = verdict["metric"] == "step_time_min_s"
    return Row(
        name=verdict["id"].rpartition("::")[2],
        metric=verdict["metric"],
        verdict=verdict["verdict"],
        effect=verdict["effect"],
        noise=noise.get(verdict["id"]) if timed else None,
        pairs=verdict["launches"],
        reason=verdict["reason"],
    )


def launch_noise(state: State) -> dict[str, float]:
    """By node id, from the smallest step times of the pairs."""
    ratios: dict[str, list[float]] = {}
    for pair in range(1, 16):
        both = state.complete(pair)
        if both is None:
            break
        base, head = (
            run_in(RunDirectory(path=state.folder / both[side].folder / both[side].run)).results
            for side in ("base", "head")
        )
        for name in base.keys() & head.keys():
            times = [one[name].metrics.get("step_time_min_s") for one in (base, head)]
            if times[0] is not None and times[1] is not None:
                ratios.setdefault(name, []).append(math.log(times[1].value / times[0].value))
    return {name: stdev(d) / math.sqrt(2) for name, d in ratios.items() if len(d) > 1}


def told(title: str, rows: list[Row], seconds: float) -> None:
    """Print the step times of a comparison, and whatever else is not unchanged."""
    print(f"\n{title}: {seconds:.0f} s")
    for row in sorted(rows, key=lambda row: (row.metric, row.name)):
        if row.metric == "step_time_min_s" or row.verdict != "unchanged":
            effect = "-" if row.effect is None else f"{row.effect:+.2%}"
            noise = "-" if row.noise is None else f"{row.noise:.2%}"
            print(
                f"  {row.name:45} {row.metric:18} {row.verdict:12} {effect:>8} "
                f"noise {noise:>7} pairs {row.pairs:2}  {row.reason}"
            )
    sys.stdout.flush()


def wrong_in_slower(rows: list[Row]) -> list[str]:
    """What should have been regressed and was not, with no noise to excuse it."""
    slowed = [r for r in rows if r.metric == "step_time_min_s" and r.name.startswith(SLOWED)]
    excused = [r for r in slowed if r.verdict == "inconclusive" and (r.noise or 0) > LOUD]
    return [
        f"{r.name}: {r.verdict} at 10 % slower"
        for r in slowed
        if r.verdict != "regressed" and r not in excused
    ]


def main() -> int:
    """Run everything; see the module's docstring."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=10, help="comparisons of the code with itself")
    parser.add_argument("--slow-runs", type=int, default=1, help="comparisons with a slower copy")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--max-time", type=float, default=0.5, help="measure.max_time_s")
    options = parser.parse_args()
    control = ["benchmarks/control", *(f"benchmarks/{file}" for file in MLP)]
    resnet = ["benchmarks/training/test_resnet.py", "benchmarks/inference/test_resnet.py"]
    measure = f"--measure.max_time_s={options.max_time}"
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(prefix="live-aa-") as temporary:
        folder = Path(temporary)
        base, equal = copy_of(ROOT, folder / "base"), copy_of(ROOT, folder / "head")
        for number in range(1, options.runs + 1):
            arguments = [*control, *resnet, "-k", f"{PLAIN} and not resnet50", measure]
            start = time.monotonic()
            rows = compare(base, equal, folder / f"aa-{number}", arguments, options.pairs)
            told(f"A/A {number} of {options.runs}", rows, time.monotonic() - start)
            wrong += [
                f"A/A {number}: {r.name} {r.metric}" for r in rows if r.verdict == "regressed"
            ]
        if options.slow_runs:
            slower = copy_of(ROOT, folder / "slow")
            slow_down(slower, calibrated(folder, options.max_time))
        for number in range(1, options.slow_runs + 1):
            start = time.monotonic()
            results = folder / f"slower-{number}"
            rows = compare(base, slower, results, [*control, "-k", PLAIN, measure], options.pairs)
            told(f"slower {number} of {options.slow_runs}", rows, time.monotonic() - start)
            wrong += wrong_in_slower(rows)
    print("\n" + ("\n".join(wrong) or "no false alarm, and no slowdown was called unchanged"))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
