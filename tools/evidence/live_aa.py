"""``gpubench ab`` on this machine, on code whose truth is known; writes docs/evidence/live_ab.md.

    python tools/evidence/live_aa.py [--runs 10] [--head-runs 3] [--pairs 15]

A project of 20 benchmarks is made in a temporary folder, twice. *A/A*: the copies are equal, and
nothing may be regressed; beside the last comparison a process keeps one core busy. *Heads*: the
second copy is slower in four benchmarks, each in another way, and nothing may be called unchanged
there that :data:`HEADS` does not let pass. The exit code is 1 if that does not hold. It needs a
machine that does nothing else, and about an hour.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, stdev
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2]))

from gpubench_plugin.environment.hardware import cpu_facts
from tools.evidence.pages import busy_processes, markdown, save

MAIN = "import sys; from gpubench_plugin.cli.main import main; sys.exit(main())"
SUITE = '''"""Steps on a CPU, and four whose head is slower."""

import hashlib
import itertools
import json
import os
import random
import time
import zlib

import numpy as np
import pytest

HEAD = False
STEP_S = 5e-4
SLOW_LAUNCH = os.urandom(1)[0] < 51  # a fifth of all processes
calls = itertools.count()
numbers = random.Random(0).sample(range(10_000), 2_000)
text = json.dumps(numbers).encode()
matrix = np.random.default_rng(0).standard_normal((96, 96))
table = {number: str(number) for number in numbers}


def spin(seconds=STEP_S):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


HEADS = {
    "all_calls_10_percent_slower": lambda: spin(STEP_S * 1.1),
    "median_doubled_at_an_equal_floor": lambda: spin(STEP_S * (2 if next(calls) % 5 < 3 else 1)),
    "every_8th_call_10_times_as_long": lambda: spin(STEP_S * (1 if next(calls) % 8 else 10)),
    "a_fifth_of_launches_50_percent_slower": lambda: spin(STEP_S * (1.5 if SLOW_LAUNCH else 1)),
}
STEPS = {
    **{name: head if HEAD else spin for name, head in HEADS.items()},
    "sorted": lambda: sorted(numbers),
    "set": lambda: set(numbers),
    "sum": lambda: sum(numbers),
    "joined": lambda: ",".join(table.values()),
    "json_dumps": lambda: json.dumps(numbers),
    "json_loads": lambda: json.loads(text),
    "sha256": lambda: hashlib.sha256(text).digest(),
    "crc32": lambda: zlib.crc32(text),
    "compressed": lambda: zlib.compress(text, 1),
    "matmul": lambda: matrix @ matrix,
    "solve": lambda: np.linalg.solve(matrix, matrix[0]),
    "fft": lambda: np.fft.fft2(matrix),
    "numpy_sort": lambda: np.sort(matrix, axis=None),
    "exp": lambda: np.exp(matrix),
    "loop": lambda: [number * number for number in numbers],
    "looked_up": lambda: [table[number] for number in numbers],
}


@pytest.mark.parametrize("step", STEPS)
def test_step(gpubench, step):
    gpubench(STEPS[step])
'''
EARLY = "--unchanged-from=5"
QUIET = 0.005
KINDS = ("unchanged", "inconclusive", "improved", "regressed")
HEADS = {
    "all_calls_10_percent_slower": 0.0,
    "median_doubled_at_an_equal_floor": 0.0,
    "every_8th_call_10_times_as_long": 0.0,
    "a_fifth_of_launches_50_percent_slower": 0.12,
}
"""By head, how often it may be called unchanged: of launches, 0.8¹⁰ show nothing in ten pairs."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One comparison: by benchmark the verdict on its step time and the noise of launches.

    The noise is the standard deviation of the log value of a launch, of floor or median, whichever
    is more, from the differences of pairs.
    """

    verdicts: dict[str, dict[str, Any]]
    noise: dict[str, float]
    seconds: float
    launches: int

    def share(self, kind: str) -> float:
        """How many of the benchmarks have a verdict of that kind."""
        return Counter(one["verdict"] for one in self.verdicts.values())[kind] / len(self.verdicts)

    @property
    def quiet(self) -> str:
        """How many of the benchmarks with at most 0.5% of noise are unchanged, ``4 of 5``."""
        quiet = [name for name in self.verdicts if self.noise[name] <= QUIET]
        unchanged = sum(self.verdicts[name]["verdict"] == "unchanged" for name in quiet)
        return f"{unchanged} of {len(quiet)}"


def project(folder: Path, *, head: bool) -> Path:
    """The suite in a folder of its own."""
    folder.mkdir()
    suite = SUITE.replace("HEAD = False", f"HEAD = {head}")
    (folder / "test_steps.py").write_text(suite)
    (folder / "pyproject.toml").write_text("[tool.pytest.ini_options]\naddopts = '-q'\n")
    return folder


def compare(base: Path, head: Path, results: Path, *more: str) -> Outcome:
    """One comparison, with `more` options."""
    options = [f"--base={base}", f"--head={head}", f"--results-dir={results}", "--same", *more]
    measure = ["--measure.min_time_s=0.05", "--measure.max_time_s=0.1"]
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", MAIN, "ab", *options, "--format=json", "--", *measure],
        cwd=base,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    if done.returncode not in {0, 1}:
        sys.exit(f"gpubench ab ended with exit code {done.returncode}")
    timed = [one for one in json.loads(done.stdout)["benchmarks"] if "step_time" in one["metric"]]
    return Outcome(
        verdicts={name_of(one["id"]): one for one in timed},
        noise=noise_of(next(results.glob("ab/*/state.json")).parent),
        seconds=time.monotonic() - start,
        launches=len(list(results.glob("ab/*/launches/*"))),
    )


def name_of(node_id: str) -> str:
    """The case of a node id: ``sorted`` of ``test_steps.py::test_step[sorted]``."""
    return node_id.partition("[")[2].rstrip("]")


def noise_of(folder: Path) -> dict[str, float]:
    """By benchmark the noise of the launches that a comparison has judged."""
    logs: dict[tuple[str, str], dict[tuple[int, str], float]] = {}
    for launch in json.loads((folder / "state.json").read_text(encoding="utf-8"))["launches"]:
        if not launch["pair"] or launch["problem"] or launch["replaced"]:
            continue  # of the warm-up pair, or measured again
        summary = folder / launch["folder"] / launch["run"] / "summary.json"
        for one in json.loads(summary.read_text(encoding="utf-8"))["benchmarks"]:
            for metric in {"step_time_min_s", "step_time_s"} & one["metrics"].keys():
                of_number = logs.setdefault((name_of(one["id"]), metric), {})
                of_number[launch["pair"], launch["side"]] = math.log(
                    one["metrics"][metric]["value"]
                )
    noise: dict[str, float] = {}
    for (name, _), of_number in logs.items():
        differences = [
            of_number[pair, "head"] - before
            for (pair, side), before in of_number.items()
            if side == "base" and (pair, "head") in of_number
        ]
        noise[name] = max(stdev(differences) / math.sqrt(2), noise.get(name, 0.0))
    return noise


def row(name: str, outcome: Outcome) -> list[str]:
    """A comparison as a row of the page."""
    return [
        name,
        str(len(outcome.verdicts)),
        *(f"{outcome.share(kind):.0%}" for kind in KINDS),
        f"{median(outcome.noise.values()):.1%}",
        outcome.quiet,
        str(outcome.launches),
        f"{outcome.seconds / 60:.1f}",
    ]


def told(name: str, outcome: Outcome) -> None:
    """Print what is not unchanged, as it comes."""
    print(f"\n{name}: {outcome.seconds:.0f} s, {outcome.share('inconclusive'):.0%} inconclusive")
    for benchmark, one in outcome.verdicts.items():
        if one["verdict"] != "unchanged":
            print(f"  {benchmark:40} {one['verdict']:12} {one['reason']}")
    sys.stdout.flush()


def _machine() -> str:
    cpu = cpu_facts()
    return f"{cpu['usable_cores']} processors, {cpu['model']}"


def page(equal: Sequence[tuple[str, Outcome]], heads: Sequence[Outcome], pairs: int) -> None:
    """Write all of it down."""
    quiet = "unchanged of those with ≤ 0.5% of noise"
    columns = ("", "benchmarks", *KINDS, "noise", quiet, "launches", "minutes")
    rows = []
    for name in HEADS:
        kinds = Counter(one.verdicts[name]["verdict"] for one in heads)
        parts = [one.verdicts[name] for one in heads]
        moved = Counter(
            part["metric"]
            for one in parts
            for part in one["parts"]
            if part["verdict"] == one["verdict"] == "regressed"
        )
        rows.append(
            [
                name.replace("_", " "),
                ", ".join(f"{count} {kind}" for kind, count in kinds.items()),
                ", ".join(f"{metric} {count}" for metric, count in moved.items()),
            ]
        )
    save(
        "live_ab.md",
        "# `gpubench ab` on a machine\n\n"
        "`python tools/evidence/live_aa.py` makes a project of 20 benchmarks twice, compares the "
        f"copies in up to {pairs} pairs, and writes this page. Each benchmark is timed for 0.05 to "
        f"0.1 s in a launch. The machine: {_machine()}. *Noise* is the standard deviation of the "
        "log value of a launch, of floor or median, whichever varies more, from the very pairs "
        "that were judged; the column has that of the benchmark in the middle.\n",
        "## Equal copies\n",
        markdown(columns, [row(*one) for one in equal]),
        "## Heads that are slower\n",
        markdown(("the head", f"verdicts of {len(heads)}", "what moved, how often"), rows),
    )


def wrong(equal: Sequence[tuple[str, Outcome]], heads: Sequence[Outcome]) -> list[str]:
    """What should not have been called so."""
    alarms = [
        f"{name}: {benchmark} regressed"
        for name, outcome in equal
        for benchmark, one in outcome.verdicts.items()
        if one["verdict"] == "regressed"
    ]
    passed = [
        f"{name}: unchanged in {count} of {len(heads)}"
        for name, share in HEADS.items()
        if (count := sum(one.verdicts[name]["verdict"] == "unchanged" for one in heads))
        > max(1, share * len(heads)) * (share > 0)
    ]
    return [*alarms, *passed]


def main() -> int:
    """Run everything; see the module's docstring."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=10, help="comparisons of equal copies")
    parser.add_argument("--head-runs", type=int, default=3, help="comparisons with slower heads")
    parser.add_argument("--pairs", type=int, default=15)
    options = parser.parse_args()
    pairs = f"--pairs={options.pairs}"
    equal: list[tuple[str, Outcome]] = []
    heads: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="live-aa-") as temporary:
        folder = Path(temporary)
        base, copy, slower = (
            project(folder / name, head=name == "slower") for name in ("base", "copy", "slower")
        )
        for number in range(options.head_runs):
            heads.append(compare(base, slower, folder / f"heads-{number}", pairs))
            told(f"heads {number + 1} of {options.head_runs}", heads[-1])
        early = compare(base, copy, folder / "early", pairs, EARLY)
        told(EARLY, early)
        for number in range(1, options.runs + 1):
            is_busy = number == options.runs
            name = f"{number}{', beside a busy process' * is_busy}"
            with busy_processes(int(is_busy)):
                outcome = compare(base, copy, folder / f"equal-{number}", pairs)
            equal.append((name, outcome))
            told(f"A/A {name} of {options.runs}", outcome)
    equal.append((f"`{EARLY}`", early))
    page(equal, heads, options.pairs)
    problems = wrong(equal, heads)
    fine = "no false alarm, and no slowdown was called unchanged more often than it may be"
    print("\n" + ("\n".join(problems) or fine))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
