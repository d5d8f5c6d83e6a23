"""What the front of a session with ``--on`` costs, and how well slots are used.

    python tools/evidence/shards.py

Writes docs/evidence/shards.md. First 3,000 benchmarks on 200 simulated nodes, which write what
shards would: the processor time of the front. Then 300 benchmarks whose steps sleep, on one, two
and four slots: the time from the first to the last of them, by the journal, beside the ideal. Four
slots are simulated nodes, since ``local`` has no more slots than cores. Last, steps that compute,
on one slot and on two, in turns.

The exit code is 1 where the front takes more than 30 s, or slots are used to less than 0.9. It
takes about six minutes on two processors.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from pathlib import Path
from statistics import fmean, median, stdev
from time import time
from typing import Any, Final

sys.path.append(str(Path(__file__).resolve().parents[2]))

from gpubench_plugin.core.format import duration
from tools.evidence.pages import ROOT, markdown, save

TOY: Final = ROOT / "tests/support/toy_engine"
BENCHMARKS, NODES, TEST_S = 3000, 200, 2.0
SLEEPING: Final = 300
SLOTS: Final = {1: "local:1", 2: "local:2", 4: "toy:4"}
MOST_S: Final = 30.0
LEAST: Final = 0.9
SUITE: Final = """
import time
import pytest

@pytest.mark.parametrize("n", range({count}))
@pytest.mark.gpubench(exclusive=False)
def test_sleep(gpubench, n):
    gpubench(lambda: time.sleep({sleep_s}))
"""
METER: Final = """
import json, os, time

cpu_s = {}

def note(name):
    cpu_s[name] = time.process_time()

def pytest_collection_finish():
    note("collected")

def pytest_runtest_logfinish():
    note("last benchmark")

def pytest_unconfigure():
    note("end")
    if "GPUBENCH_SHARD" not in os.environ:
        with open("cpu.json", "w") as file:
            json.dump(cpu_s, file)
"""
QUICK: Final = ("--measure.by=steps", "--measure.steps=20", "--measure.warmup_s=0.001")
INTRODUCTION: Final = """# Shards: what the front costs, and how well slots are used

Written by `python tools/evidence/shards.py` on {day}: Python {python}, {cores} processors{load}.
"""
FRONT: Final = """## Many nodes

{benchmarks:,} benchmarks on {nodes} simulated nodes, which take {seconds:g} s for each and write
what a real shard has written: reports, records and events. The front's processor time, which may be
{most:g} s:

{table}
It collects and resolves in the first row, reads, replays and journals in the second, and writes the
summary, `benchmark.json` and the table in the third.
"""
USED: Final = """## Use of slots

{count} benchmarks with `exclusive=False`, whose 20 timed steps sleep for 20 ms each. *Time* is from
the first to the last of them, *start-up* from the start of the session to the first: the front, and
the session of a shard. *Used* is the time on one slot by the slots and the time on them, at least
{least:g}; above 1 where others used the machine more while the one slot was measured. Four slots
are simulated nodes, a process each: `local` has no more slots than cores.

{table}"""


BESIDE: Final = """## Beside each other

{count} benchmarks with `exclusive=False` that compute {step} at a time, measured as by default in
{sessions} sessions each, in turns. *Bias* is that of the median against one slot, *noise* the
relative standard deviation of a benchmark over its sessions. Flagged are records with `descheduled`
or `contended`: threads that waited for a processor for 2% of the timed blocks, or 5%, which is how
a record tells what a slot has cost. What GPUs cost each other, in power and on the bus, is not
measured here.

{table}"""
SPINNING: Final = """
import pytest

def spin():
    for _ in range(50_000):
        pass

@pytest.mark.parametrize("n", range(8))
@pytest.mark.gpubench(exclusive=False)
def test_spin(gpubench, n):
    gpubench(spin)
"""
SESSIONS: Final = 3


@dataclass(frozen=True)
class Session:
    """What a session took: its front's processor time by what it had done, and the wall clock."""

    cpu_s: dict[str, float]
    startup_s: float
    measuring_s: float


def main() -> int:
    """Write the page; 1 if a bound is broken."""
    load = os.getloadavg()[0]
    front = session(BENCHMARKS, 0.001, f"toy-paper:{NODES}")
    sessions = {slots: session(SLEEPING, 0.02, on) for slots, on in SLOTS.items()}
    used = {n: sessions[1].measuring_s / (n * s.measuring_s) for n, s in sessions.items()}
    rows = [
        (
            *(str(n), f"`{SLOTS[n]}`", f"{s.startup_s:.1f} s", f"{s.measuring_s:.1f} s"),
            f"{used[n]:.3f}",
        )
        for n, s in sessions.items()
    ]
    save(
        "shards.md",
        INTRODUCTION.format(
            day=f"{datetime.now():%Y-%m-%d}",
            python=platform.python_version(),
            cores=os.cpu_count(),
            load=f", load average {load:.1f} at the start",
        ),
        FRONT.format(
            benchmarks=BENCHMARKS,
            nodes=NODES,
            seconds=TEST_S,
            most=MOST_S,
            table=markdown(("until", "CPU"), [(k, f"{v:.1f} s") for k, v in front.cpu_s.items()]),
        ),
        USED.format(
            count=SLEEPING,
            least=LEAST,
            table=markdown(("slots", "`--on`", "start-up", "time", "used"), rows),
        ),
        beside(),
    )
    return 0 if front.cpu_s["end"] <= MOST_S and min(used.values()) >= LEAST else 1


def session(count: int, sleep_s: float, on: str) -> Session:
    """Run `count` benchmarks whose step sleeps."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pytest.ini").write_text("[pytest]\n")
        (folder / "conftest.py").write_text(METER)
        (folder / "test_it.py").write_text(SUITE.format(count=count, sleep_s=sleep_s))
        begun = time()
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", f"--on={on}", *QUICK],
            cwd=folder,
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            sys.exit(f"pytest ended with {done.returncode}:\n{done.stdout[-4000:]}{done.stderr}")
        (journal,) = folder.glob("results/*/*/metrics.jsonl")
        lines = [json.loads(line) for line in journal.read_text().splitlines()]
        first = min(seconds(line["time"]) for line in lines if line["event"] == "phase")
        ends = [seconds(line["time"]) for line in lines if line["event"] == "benchmark"]
        assert len(ends) == count
        cpu_s = json.loads((folder / "cpu.json").read_text())
        return Session(
            cpu_s,
            startup_s=first - begun,
            measuring_s=max(ends) - first,
        )


def beside() -> str:
    """The section on what slots cost what they measure."""
    records: dict[str, list[dict[str, Any]]] = {"local:1": [], "local:2": []}
    took_s = dict.fromkeys(records, 0.0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pytest.ini").write_text("[pytest]\n")
        (folder / "test_it.py").write_text(SPINNING)
        for _ in range(SESSIONS):
            for on, own in records.items():
                command = [sys.executable, "-m", "pytest", "-q", f"--on={on}"]
                begun = time()
                subprocess.run(command, cwd=folder, env=environment(), check=True)
                took_s[on] += time() - begun
                newest = max(folder.glob("results/*/*/summary.json"))
                own.extend(json.loads(newest.read_text())["benchmarks"])
    steps = {on: by_name(own) for on, own in records.items()}
    alone_s = median(chain(*steps["local:1"].values()))
    rows = []
    for on, own in records.items():
        middle_s = median(chain(*steps[on].values()))
        noise = median(stdev(values) / fmean(values) for values in steps[on].values())
        flagged = sum(bool({"descheduled", "contended"} & {*record["flags"]}) for record in own)
        numbers = (f"{middle_s / alone_s - 1:+.2%}", f"{noise:.2%}", f"{flagged} of {len(own)}")
        rows.append((f"`{on}`", f"{took_s[on] / SESSIONS:.1f} s", *numbers))
    table = markdown(("`--on`", "session", "bias", "noise", "flagged"), rows)
    return BESIDE.format(
        count=len(steps["local:1"]), step=duration(alone_s, 2), sessions=SESSIONS, table=table
    )


def by_name(records: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Median step times of each benchmark."""
    steps: dict[str, list[float]] = {}
    for record in records:
        value = record["metrics"]["step_time_s"]["value"]
        steps.setdefault(record["name"], []).append(value)
    return steps


def seconds(text: str) -> float:
    """Unix time of a line of the journal."""
    return datetime.fromisoformat(text).timestamp()


def environment() -> dict[str, str]:
    """The variables of a session, with the toy engines."""
    paths = [str(TOY), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    own = {"OMP_NUM_THREADS": "1", "GPUBENCH_REGISTRY": "none", "TOY_ENGINE_SECONDS": str(TEST_S)}
    return {**os.environ, **own, "PYTHONPATH": os.pathsep.join(paths)}


if __name__ == "__main__":
    sys.exit(main())
