"""Benchmarks of nothing, of sleeping and of spinning: what they should read is known.

They measure the measuring. A suite whose ``noop`` or ``sleep`` changed has changed its machine or
its harness, not its code.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from gpubench_plugin.bench.bench import Bench

SLEEP_S = 1e-3
SPIN_S = 1e-4


def noop() -> None:
    """Do nothing: what is left is a call of a Python function."""


def spin() -> None:
    """Keep the processor busy until the time is over."""
    end = time.perf_counter() + SPIN_S
    while time.perf_counter() < end:
        pass


@pytest.mark.gpubench
def test_noop(gpubench: Bench) -> None:
    """A call that does nothing reads some tens of nanoseconds."""
    gpubench(noop)


@pytest.mark.gpubench
def test_sleep(gpubench: Bench) -> None:
    """A sleep of 1 ms reads 1 ms and what the system takes to wake a process up."""
    gpubench(partial(time.sleep, SLEEP_S))


@pytest.mark.gpubench
def test_spin(gpubench: Bench) -> None:
    """A busy wait of 100 µs reads 100 µs and at most one turn of its loop more."""
    gpubench(spin)
