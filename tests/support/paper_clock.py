"""A clock that only goes on where benchmarks let it, in every process that finds it on its path.

What is slower is slower by exactly that much, whatever else the machine does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

# Launches differ by up to 0.4%, as those of a quiet machine do.
_CLOCK: Final = """
import os
import time

READING_NS = 50
launch = 1 + 0.001 * (os.getpid() % 5)
time_ns = 0.0

def spend(ns):
    global time_ns
    time_ns += ns * launch

def now():
    spend(READING_NS)
    return round(time_ns)

def seconds():
    return now() * 1e-9

time.perf_counter_ns = time.process_time_ns = now
"""

CONFTEST: Final = """
from gpubench_plugin.measure.probes.interference import Contention

Contention.flags = ()
"""
"""A conftest.py of benchmarks on this clock: the machine's run queue goes by another one.

5 ms of waiting would be 5% of 0.1 s on this clock, and a disturbed pair would be measured again.
"""


def write(folder: Path, also: str = "") -> None:
    """Let processes with `folder` on their ``PYTHONPATH`` begin with the clock, and do `also`.

    Benchmarks import ``spend`` from ``paper_clock``: it takes nanoseconds.
    """
    (folder / "paper_clock.py").write_text(_CLOCK)
    (folder / "sitecustomize.py").write_text(f"import paper_clock\n{also}\n")
