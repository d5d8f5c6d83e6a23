"""What plain Python functions cost with gpubench, beside the same with pytest-benchmark.

    python tools/evidence/plain_cost.py [--turns=5] [--against=TREE]

A session with one trivial benchmark, and one with twenty, each with either fixture, in turns and in
both directions: wall and processor time of the whole session, and the 95% interval of the median of
the rounds as a share of it, computed alike of the rounds that each has recorded. With
``--against=TREE`` another checkout of this project has its turns, too.

Exit code 1 where one benchmark takes more than 1.5 times pytest-benchmark's session, or twenty more
than half of it, or have wider intervals.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from gpubench_plugin.measure.interval import median_interval

HERE = Path(__file__).parents[2]
BOUNDS = {1: 1.5, 20: 0.5}
TEST = """
import pytest

@pytest.mark.parametrize("number", range({count}))
def test_sum({fixture}, number):
    {fixture}(lambda: sum(range(1000)))
"""


@dataclass(frozen=True)
class Session:
    """Seconds of a session, and the widths of its benchmarks' intervals over their medians."""

    wall_s: float
    cpu_s: float
    widths: list[float]


def main(turns: int, against: Path | None) -> int:
    """Print a row for each tool and number of benchmarks; 1 if a bound is broken."""
    trees = {"pytest-benchmark": None, "gpubench": HERE, **({"before": against} if against else {})}
    is_kept = True
    print("| benchmarks | by | wall | processor | ratio of walls | width of the interval |")
    print("| ---: | --- | ---: | ---: | ---: | ---: |")
    for count, bound in BOUNDS.items():
        sessions: dict[str, list[Session]] = {name: [] for name in trees}
        for turn in range(turns):
            for name in [*trees][:: -1 if turn % 2 else 1]:
                sessions[name].append(_session(trees[name], count))
        of_theirs = median(s.wall_s for s in sessions["pytest-benchmark"])
        widths = {name: median(w for s in of for w in s.widths) for name, of in sessions.items()}
        for name, of in sessions.items():
            wall_s, cpu_s = median(s.wall_s for s in of), median(s.cpu_s for s in of)
            print(
                f"| {count} | {name} | {wall_s:.2f} s | {cpu_s:.2f} s | {wall_s / of_theirs:.2f} "
                f"| {widths[name]:.2%} |"
            )
            if name == "gpubench":
                is_wider = count > 1 and widths[name] > widths["pytest-benchmark"]
                is_kept &= wall_s <= bound * of_theirs and not is_wider
    return int(not is_kept)


def _session(tree: Path | None, count: int) -> Session:
    """One session: of gpubench in that tree, or of pytest-benchmark."""
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder)
        fixture = "gpubench" if tree else "benchmark"
        (project / "pytest.ini").write_text("[pytest]\n")
        (project / "test_it.py").write_text(TEST.format(count=count, fixture=fixture))
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:randomly",
        ]
        command += [] if tree else ["-p", "no:gpubench"]
        command += ["--benchmark-json=of.json", "--benchmark-save-data"]
        variables = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        variables |= {"PYTHONPATH": str(tree)} if tree else {}
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(command, cwd=project, check=True, capture_output=True, env=variables)
        wall_s = time.perf_counter() - start
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        entries = json.loads((project / "of.json").read_text())["benchmarks"]
        return Session(wall_s, cpu_s, [_width(entry["stats"]["data"]) for entry in entries])


def _width(rounds_s: list[float]) -> float:
    """Infinite where the rounds bear no interval out: their phases are too long."""
    interval = median_interval(rounds_s)
    return math.inf if interval is None else (interval.high - interval.low) / median(rounds_s)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--against", type=Path)
    arguments = parser.parse_args()
    sys.exit(main(arguments.turns, arguments.against))
