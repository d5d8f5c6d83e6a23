"""How the history gate judges real suites of pytest-benchmark: docs/evidence/adopted_gate.md.

    python tools/evidence/adopted_gate.py FOLDER:ARGUMENT [FOLDER:ARGUMENT …]

For each suite, a checkout and the file or folder of its benchmarks: ten runs are pinned, then ten
runs of the same code are judged, by turns with ten in which one function is 20% slower. That is the
one in the middle by its time: a counted loop follows each of its calls. Functions that such a loop
would slow by more, even an empty one, are not chosen.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import sleep
from timeit import repeat
from typing import TYPE_CHECKING

# Last: the package may be that of another checkout, which PYTHONPATH names.
sys.path.append(str(Path(__file__).resolve().parents[2]))

from tools.evidence.pages import markdown, save

if TYPE_CHECKING:
    from collections.abc import Mapping

RUNS = 10
SHARE = 0.2
SHORTEST_S = 3e-6
PASSES_PER_S = 2e8
"""Of a loop, about: with as many as take the function's time the share of one is known best."""

INTRODUCTION = """# The history gate on suites of other projects

Written by `python tools/evidence/adopted_gate.py`. Suites that know nothing of gpubench, adopted
with `--adopt` on {machine}. Each session begins once the minima of a fixed loop agree for a second.
Ten runs are pinned, and no later run counts; then ten runs of the same code are judged, by turns
with ten in which one function is 20% slower. *Alarms* are benchmarks called regressed in the runs
of the same code; *found* tells in how many of its ten runs the slower function was, *others* how
many equal ones were called beside it. *Decided* is the share of verdicts on equal code that say
unchanged or improved. *By* compares the middle of the function's minima in the runs that slowed it
with that in the others.
"""
COLUMNS = ("suite", "benchmarks", "alarms", "decided", "found", "others", "slower function", "by")

# Loaded by every process of a session, those of the confirmation included.
PLANT = """
import os
from functools import wraps
from itertools import repeat

from pytest_benchmark.fixture import BenchmarkFixture

name, loops = os.environ["PLANTED"].rsplit("=", 1)
loops = int(loops)

def slowed(function):
    def slower(*args, **kwargs):
        result = function(*args, **kwargs)
        for _ in repeat(None, loops):
            pass
        return result
    return slower

def planted(method):
    @wraps(method)
    def call(self, function, *args, **kwargs):
        is_slower = self.fullname.endswith(name)
        return method(self, slowed(function) if is_slower else function, *args, **kwargs)
    return call

BenchmarkFixture.__call__ = planted(BenchmarkFixture.__call__)
BenchmarkFixture.pedantic = planted(BenchmarkFixture.pedantic)
"""


class Host:
    """The machine: others that share its processors slow all on it, in phases of minutes."""

    fastest_s = math.inf

    def await_idle(self) -> None:
        """Wait for a second in which the minima of a fixed loop are as fast as ever, or nearly."""
        while True:
            times = [
                min(repeat(lambda: sum(range(200_000)), number=1, repeat=40)) for _ in range(10)
            ]
            self.fastest_s = min(self.fastest_s, *times)
            if max(times) < 1.15 * self.fastest_s:
                return
            sleep(5)


@dataclass(frozen=True)
class Suite:
    """A checkout with benchmarks below the path `argument`."""

    folder: Path
    argument: str
    results: Path
    host: Host

    def run(self, *options: str, planted: str = "") -> Mapping[str, tuple[str, float]]:
        """Measure; verdict and minimum of each benchmark, the first empty where none was asked."""
        env = {**os.environ, "GPUBENCH_REGISTRY": "none"}
        if planted:
            (self.results / "gpubench_plant.py").write_text(PLANT, encoding="utf-8")
            env |= {"PYTHONPATH": str(self.results), "PLANTED": planted}
            options = (*options, "-p", "gpubench_plant")
        before = {*self._runs()}
        command = [sys.executable, "-m", "pytest", self.argument, "--adopt", "-q"]
        # Without the project's own options, which are for plugins that are not here.
        command += ["-c", os.devnull, "--rootdir=.", "-p", "no:cacheprovider"]
        command += [f"--results-dir={self.results}", *options]
        self.host.await_idle()
        subprocess.run(command, cwd=self.folder, env=env, check=False, stdout=subprocess.DEVNULL)
        (run,) = {*self._runs()} - before
        summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
        times = {
            each["id"]: each["metrics"]["step_time_min_s"]["value"]
            for each in summary["benchmarks"]
            if each["outcome"] == "measured"
        }
        kinds = {}
        if (file := run / "verdicts.json").exists():
            for verdict in json.loads(file.read_text(encoding="utf-8"))["benchmarks"]:
                if verdict["metric"].startswith("step_time") or not verdict["metric"]:
                    kinds[verdict["id"]] = verdict["verdict"]
        return {name: (kinds.get(name, ""), seconds) for name, seconds in times.items()}

    def _runs(self) -> list[Path]:
        return sorted(self.results.glob("default/*/"))

    def _passes(self, name: str, seconds: float) -> int:
        """The passes of a loop that make the benchmark slower by the share, by two points."""
        guess = round(seconds * PASSES_PER_S)
        none_s, guess_s = (
            min(self.run(planted=f"{name}={passes}")[name][1] for _ in range(3))
            for passes in (0, guess)
        )
        return max(0, round(guess * ((1 + SHARE) * seconds - none_s) / (guess_s - none_s)))

    def judged(self) -> tuple[str, ...]:
        """The row of the suite."""
        pinned = [self.run() for _ in range(RUNS)]
        names = [run.name for run in self._runs()]
        shell = [sys.executable, "-m", "gpubench_plugin", "baseline", "set", "main", *names]
        shell += ["--no-branch", "--force", "--reason=doubts", f"--results-dir={self.results}"]
        subprocess.run(shell, check=True, cwd=self.folder)
        times = {name: median(run[name][1] for run in pinned) for name in pinned[0]}
        choice = sorted((time, name) for name, time in times.items() if time > SHORTEST_S)
        time, slowed = choice[len(choice) // 2]
        planted = f"{slowed}={self._passes(slowed, time)}"
        gate = ("--baseline=main", "--gate")
        equal, slower = [], []
        for _ in range(RUNS):
            equal.append(self.run(*gate))
            slower.append(self.run(*gate, planted=planted))
        kinds = [kind for run in equal for kind, _ in run.values()]
        others = [kind for run in slower for name, (kind, _) in run.items() if name != slowed]
        decided = sum(kind in {"unchanged", "improved"} for kind in kinds) / len(kinds)
        found = sum(run[slowed][0] == "regressed" for run in slower)
        base, head = (median(run[slowed][1] for run in runs) for runs in (equal, slower))
        commit = subprocess.run(
            ["git", "describe", "--always"],
            check=True,
            cwd=self.folder,
            capture_output=True,
            text=True,
        ).stdout.strip()
        return (
            f"{self.folder.name} {commit}",
            f"{len(times)}",
            f"{kinds.count('regressed')}",
            f"{decided:.0%}",
            f"{found} of {RUNS}",
            f"{others.count('regressed')}",
            f"`{slowed.rpartition('::')[2]}`, {time * 1e6:.3g} µs",
            f"{head / base - 1:.0%}",
        )


def main() -> None:
    """Judge the suites, and write the page."""
    rows, host = [], Host()
    for given in sys.argv[1:]:
        folder, _, argument = given.rpartition(":")
        with TemporaryDirectory() as results:
            rows.append(Suite(Path(folder).resolve(), argument, Path(results), host).judged())
        sys.stdout.write(f"{rows[-1]}\n")
    machine = f"an idle machine of {os.cpu_count()} processors"
    save("adopted_gate.md", INTRODUCTION.format(machine=machine), markdown(COLUMNS, rows))


if __name__ == "__main__":
    main()
