"""What one more benchmark costs a session in processor time and memory, first to last.

    python tools/evidence/cost_per_benchmark.py [--benchmarks=2000] [--selected=5000]
        [--way=plain|gang|torchrun] [-- OPTIONS OF PYTEST]

One file has trivial benchmarks, so that what is seen is the cost of having them measured, recorded
and reported. For each process of the session and each tenth of the benchmarks: processor time per
benchmark, resident memory and objects that garbage collections know of added per benchmark. The
very first benchmark, in which torch is imported, is left out. Beside it stands what a yardstick of
fixed work took between two benchmarks: where that changes, so did the load of the machine, and the
ratio says less. Then the processor time from the start of the process to the first of many selected
benchmarks, of a new run and of a resumed one.

The exit code is 1 where the last tenth costs more than 1.2 times what the first one does, a
benchmark adds more than 50 KB, or the first of 5,000 benchmarks comes after more than 10 s.
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
from tempfile import TemporaryDirectory
from typing import Any

TENTHS = 10
RATIO = 1.2
KIB_EACH = 50.0
FIRST_WITHIN_S = 10.0
QUICK = ("--measure.by=steps", "--measure.steps=5", "--measure.warmup_s=0.001")
"""A measurement of a few rounds, unless other options are given."""
RANKS = 2

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
ended, own_s, yardstick_s, rows = 0, 0.0, 0.0, []

def yardstick():
    sorted(json.loads(json.dumps([{{"n": n, "text": str(n)}} for n in range(300)])), key=str)

def pytest_runtest_logfinish():
    global ended, own_s, yardstick_s
    ended += 1
    at = time.process_time()
    collects = gc.isenabled()
    gc.disable()  # what the session has made it collect is the session's cost
    yardstick()
    yardstick_s += time.process_time() - at
    if collects:
        gc.enable()
    if ended == 1 or ended % EACH == 0:
        rows.append(
            dict(
                ended=ended,
                cpu_s=at - own_s,
                yardstick_s=yardstick_s,
                resident=int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"),
                tracked=len(gc.get_objects()) + gc.get_freeze_count(),
            )
        )
        Path(f"rows-{{os.environ.get('RANK', 'session')}}.json").write_text(json.dumps(rows))
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
    """Print both tables; 1 if a bound is broken."""
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
        folder = project(Path(name), count, METER.format(each=max(1, count // TENTHS)))
        pytest_in(folder, *options, way=way)
        print(f"\n{count} benchmarks, {way}, {' '.join(options)}")
        sound = True
        for file in sorted(folder.glob("rows-*.json")):
            sound &= kept_to(file.stem.partition("-")[2], json.loads(file.read_text()))
        return sound


def kept_to(who: str, rows: list[dict[str, Any]]) -> bool:
    """Print the tenths of one process; whether it kept to the bounds."""
    print(f"\n{who if who == 'session' else f'rank {who}'}")
    print(
        f"{'benchmarks':>12} {'CPU ms each':>12} {'yardstick ms':>13} {'KiB each':>9} "
        f"{'objects each':>13}"
    )
    costs, yardsticks = [], []
    for before, row in pairwise(rows):
        count = row["ended"] - before["ended"]
        costs.append((row["cpu_s"] - before["cpu_s"]) / count * 1e3)
        yardsticks.append((row["yardstick_s"] - before["yardstick_s"]) / count * 1e3)
        kib, objects = grown(before, row)
        span = f"{before['ended']}-{row['ended']}"
        print(f"{span:>12} {costs[-1]:12.2f} {yardsticks[-1]:13.2f} {kib:9.1f} {objects:13.1f}")
    ratio, (kib, objects) = costs[-1] / costs[0], grown(rows[1], rows[-1])
    drift = yardsticks[-1] / yardsticks[0]
    print(f"last tenth to first: {ratio:.2f} (at most {RATIO}); the yardstick {drift:.2f}")
    print(f"then each adds {kib:.1f} KiB (at most {KIB_EACH:g}) and {objects:.0f} objects")
    return ratio <= RATIO and kib <= KIB_EACH


def grown(before: dict[str, Any], after: dict[str, Any]) -> tuple[float, float]:
    """KiB and objects per benchmark from one row to another."""
    count = after["ended"] - before["ended"]
    resident = (after["resident"] - before["resident"]) / count / 1024
    return resident, (after["tracked"] - before["tracked"]) / count


def selected(count: int) -> bool:
    """Select `count` benchmarks, begin, and resume that run; whether both began in time."""
    with TemporaryDirectory() as name:
        folder = project(Path(name), count, FIRST)
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
    """A project in `folder` with `count` benchmarks."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_trivial.py").write_text(TEST.format(count=count))
    (folder / "conftest.py").write_text(conftest)
    return folder


def pytest_in(folder: Path, *options: str, way: str = "plain") -> None:
    """Run pytest in `folder` to its end."""
    command = {
        "plain": ["pytest"],
        "gang": ["pytest", f"--world-size={RANKS}"],
        "torchrun": [
            *("torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"),
            *("-m", "pytest"),
        ],
    }[way]
    quiet = ("-q", "-p", "no:cacheprovider", "--benchmark-quiet")
    done = subprocess.run(
        [sys.executable, "-m", *command, *quiet, *options],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "GPUBENCH_REGISTRY": "none"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(
            f"pytest ended with {done.returncode}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
        )


if __name__ == "__main__":
    sys.exit(main())
