"""What one more benchmark costs a session in processor time and memory, first to last.

    python tools/evidence/cost_per_benchmark.py [--benchmarks=2000] [--selected=5000]
        [--way=plain|gang|torchrun] [-- OPTIONS OF PYTEST]

One file has trivial benchmarks, so that what is seen is the cost of having them measured, recorded
and reported. For each process of the session and each tenth of the benchmarks: processor time per
benchmark, resident memory and objects that garbage collections know of added per benchmark. The
very first benchmark, in which torch is imported, is left out.

What else the machine does meanwhile changes the processor time of the same instructions by half. So
the end is compared with a beginning at the same time: beside the last fifth of the session others
start, and what their first benchmarks take is compared with what its own take just then.

Then the processor time from the start of the process to the first of many selected benchmarks, of a
new run and of a resumed one.

The exit code is 1 where the end costs more than 1.2 times what the beginning does, a benchmark adds
more than 50 KiB, or the first of the selected benchmarks comes after more than 10 s.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory, TemporaryFile
from time import sleep
from typing import Any

TENTHS = 10
LAST_PART = 0.8
BESIDE = 15
"""Sessions beside the end have one benchmark for so many of the long one."""
FEWEST = 10
"""Benchmarks at the same time, below which nothing is compared."""
RATIO = 1.2
KIB_EACH = 50.0
FIRST_WITHIN_S = 10.0
QUICK = ("--measure.by=steps", "--measure.steps=5", "--measure.warmup_s=0.001")
"""A measurement of five calls, unless other options are given."""
RANKS = 2

Rows = list[dict[str, Any]]

TEST = """
import pytest

@pytest.mark.gpubench(ranks="any")
@pytest.mark.parametrize("number", range({count}))
def test_trivial(gpubench, number):
    gpubench(lambda: None)
"""

METER = """
import gc, json, os, time
from pathlib import Path

EACH = {each}
STATM = Path("/proc/self/statm")
ended, own_s = 0, 0.0

def pytest_runtest_logfinish():
    global ended, own_s
    ended += 1
    at = time.process_time()
    row = dict(ended=ended, cpu_s=at - own_s, at=time.time())
    if ended == 1 or ended % EACH == 0:
        row["resident"] = int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        row["tracked"] = len(gc.get_objects()) + gc.get_freeze_count()
    with open(f"rows-{{os.environ.get('RANK', 'session')}}", "a") as file:
        print(json.dumps(row), file=file)
    own_s += time.process_time() - at
"""

FIRST = """
import os, time
from pathlib import Path

def pytest_runtest_logstart():
    Path("first").write_text(str(time.process_time()))
    os._exit(0)
"""


def main() -> int:
    """Print the tables; 1 if a bound is broken."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--benchmarks", type=int, default=2000, help="measured")
    parser.add_argument("--selected", type=int, default=5000, help="selected; 0 leaves it out")
    parser.add_argument("--way", choices=["plain", "gang", "torchrun"], default="plain")
    parser.add_argument("options", nargs="*", help="of pytest, instead of a quick measurement")
    given = parser.parse_args()
    load = f"load average {os.getloadavg()[0]:.1f} at the start"
    print(f"Python {platform.python_version()}, {os.cpu_count()} processors, {load}", flush=True)
    sound = measured(given.way, given.benchmarks, given.options or QUICK)
    if given.selected:
        sound &= selected(given.selected)
    return 0 if sound else 1


def measured(way: str, count: int, options: tuple[str, ...] | list[str]) -> bool:
    """Measure `count` benchmarks; whether they kept to the bounds."""
    with TemporaryDirectory() as name:
        folder = project(Path(name) / "long", count, METER.format(each=max(1, count // TENTHS)))
        with TemporaryFile() as output:
            long = subprocess.Popen(
                command(way, *options), cwd=folder, env=environment(), stdout=output, stderr=output
            )
            try:
                others = beside_the_end(long, way, count, options, Path(name))
            finally:
                long.terminate()  # where one beside it failed
                code = long.wait()
            output.seek(0)
            if code:
                sys.exit(f"pytest ended with {code}:\n{output.read().decode()[-4000:]}")
        print(f"\n{count} benchmarks, {way}, {' '.join(options)}")
        sound = True
        for process, rows in rows_in(folder).items():
            sound &= kept_to(process, rows, [other[process] for other in others])
        return sound


def beside_the_end(
    long: subprocess.Popen[bytes],
    way: str,
    count: int,
    options: tuple[str, ...] | list[str],
    place: Path,
) -> list[dict[str, Rows]]:
    """What new sessions wrote, one after another beside the last part of the `long` one."""
    others: list[dict[str, Rows]] = []
    number = max(count // BESIDE, 2 * FEWEST)
    while long.poll() is None:
        if least_ended(place / "long") < LAST_PART * count:
            sleep(0.2)
            continue
        folder = project(place / str(len(others)), number, METER.format(each=number))
        pytest_in(folder, *options, way=way)
        others.append(rows_in(folder))
    return others


def kept_to(process: str, rows: Rows, others: list[Rows]) -> bool:
    """Print the tenths of one process; whether it kept to the bounds."""
    print(f"\n{process if process == 'session' else f'rank {process}'}")
    print(f"{'benchmarks':>12} {'CPU ms each':>12} {'KiB each':>9} {'objects each':>13}")
    tenths = [row for row in rows if "resident" in row]
    for before, row in pairwise(tenths):
        cost = (row["cpu_s"] - before["cpu_s"]) / (row["ended"] - before["ended"]) * 1e3
        span = f"{before['ended']}-{row['ended']}"
        kib, objects = grown(before, row)
        print(f"{span:>12} {cost:12.2f} {kib:9.1f} {objects:13.1f}")
    ratios = [ratio for other in others if (ratio := at_the_same_time(rows, other))]
    ratio = fmean(ratios) if ratios else float("nan")
    shown = ", ".join(f"{one:.2f}" for one in ratios)
    kib, objects = grown(tenths[1], tenths[-1])
    print(f"the end to a beginning at the same time: {ratio:.2f} (at most {RATIO}; {shown})")
    print(f"after the first tenth each adds {kib:.1f} KiB (at most {KIB_EACH:g})", end=" ")
    print(f"and {objects:.0f} objects")
    return ratio <= RATIO and kib <= KIB_EACH


def at_the_same_time(rows: Rows, other: Rows) -> float | None:
    """What the benchmarks of `rows` cost by those of a new session, while that ran."""
    first, last = other[0]["at"], other[-1]["at"]
    meanwhile = [row for row in rows if first <= row["at"] <= last]
    until = [row for row in other if row["at"] <= rows[-1]["at"]]
    if min(len(meanwhile), len(until)) <= FEWEST:
        return None
    return each_s(meanwhile) / each_s(until)


def each_s(rows: Rows) -> float:
    """The processor time of a benchmark, in seconds."""
    return float((rows[-1]["cpu_s"] - rows[0]["cpu_s"]) / (rows[-1]["ended"] - rows[0]["ended"]))


def grown(before: dict[str, Any], after: dict[str, Any]) -> tuple[float, float]:
    """KiB and objects per benchmark from one row to another."""
    count = after["ended"] - before["ended"]
    resident = (after["resident"] - before["resident"]) / count / 1024
    return resident, (after["tracked"] - before["tracked"]) / count


def least_ended(folder: Path) -> int:
    """How many benchmarks have ended in every process that measures."""
    files = [file.read_text() for file in folder.glob("rows-*")]
    return min((text.count("\n") for text in files), default=0)


def rows_in(folder: Path) -> dict[str, Rows]:
    """What each process of a session wrote, by its name."""
    files = {file.name.partition("-")[2]: file for file in sorted(folder.glob("rows-*"))}
    return {
        process: [json.loads(line) for line in file.read_text().splitlines()]
        for process, file in files.items()
    }


def selected(count: int) -> bool:
    """Select `count` benchmarks, begin, and resume that run; whether both began in time."""
    with TemporaryDirectory() as name:
        folder = project(Path(name) / "project", count, FIRST)
        pytest_in(folder)
        new_s = float((folder / "first").read_text())
        (run,) = (folder / "results").glob("*/*")
        pytest_in(folder, f"--resume={run.name}")
        resumed_s = float((folder / "first").read_text())
        size = (run / "config_resolved.yaml").stat().st_size
    print(f"\n{count} selected: CPU to the first {new_s:.1f} s, resumed {resumed_s:.1f} s "
          f"(at most {FIRST_WITHIN_S:g}); config_resolved.yaml {size / 1e6:.1f} MB")  # fmt: skip
    return max(new_s, resumed_s) <= FIRST_WITHIN_S


def project(folder: Path, count: int, conftest: str) -> Path:
    """A project in `folder`, which is made, with `count` benchmarks."""
    folder.mkdir()
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_trivial.py").write_text(TEST.format(count=count))
    (folder / "conftest.py").write_text(conftest)
    return folder


def pytest_in(folder: Path, *options: str, way: str = "plain") -> None:
    """Run pytest in `folder` to its end."""
    done = subprocess.run(
        command(way, *options),
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(
            f"pytest ended with {done.returncode}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
        )


def command(way: str, *options: str) -> list[str]:
    """The command of a session."""
    started = {
        "plain": ["pytest"],
        "gang": ["pytest", f"--world-size={RANKS}"],
        "torchrun": [
            *("torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"),
            *("-m", "pytest"),
        ],
    }[way]
    quiet = ("-q", "-p", "no:cacheprovider", "--benchmark-quiet")
    return [sys.executable, "-m", *started, *quiet, *options]


def environment() -> dict[str, str]:
    """The variables of a session."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "GPUBENCH_REGISTRY": "none"}


if __name__ == "__main__":
    sys.exit(main())
