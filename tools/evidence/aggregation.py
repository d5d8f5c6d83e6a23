"""What it takes to bring the results of many ranks together, for one benchmark.

Simulated ranks send real reports over the real control plane, whose store is a dictionary here;
rank zero takes in one at a time and publishes its verdict. Time is rank zero's alone, the best of a
few turns. Memory is the most that Python held at once, by tracemalloc, above what it held before;
one simulated rank is part of it, what waits in a real store is not. Exit code 1 above the budget.

    python tools/evidence/aggregation.py [turns]
"""

from __future__ import annotations

import sys
import time
import tracemalloc
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from gpubench_plugin.core.records import Json, Observation, Samples, Work
from gpubench_plugin.ranks.control_plane import ControlPlane
from gpubench_plugin.ranks.reduction import (
    BLOCKS,
    DURATIONS,
    WARMUPS,
    RankAggregate,
    RankReport,
)
from gpubench_plugin.ranks.world import World
from gpubench_plugin.system import stored

BUDGET_S, BUDGET_MIB = 1.0, 100.0
SIZES = (1000, 4096)
LOADS = {"200 rounds": (200, 20, 10, 1, 8), "full": (DURATIONS, BLOCKS, WARMUPS, 19, 90)}
"""Durations, blocks, groups of the warm-up, flags and facts of every rank."""

OWN = Observation(
    samples=Samples(
        timer="cpu",
        durations_s=(),
        block_s=(),
        block_calls=(),
        first_step_s=None,
        warmup_s=(),
        warmup_calls=0,
    ),
    work=Work(),
    device="cpu",
    device_name="",
    precision="fp32",
    world_size=1,
)
"""What rank zero has observed, all of which the reports replace."""

COLUMNS = ("seconds", "MiB", "rank wrote", "rank read", "root read", "root wrote")


def dictionary_store() -> Any:
    """As much of torch's store as the control plane uses."""
    values: dict[str, bytes] = {}
    return SimpleNamespace(
        set=lambda key, text: values.update({key: text.encode()}),
        get=values.__getitem__,
        check=lambda keys: values.keys() >= set(keys),
        delete_key=values.__delitem__,
    )


def report(rank: int, durations: int, blocks: int, warmups: int, flags: int, facts: int) -> Json:
    """What a rank tells of steps of 10 ms; the higher ranks take a little longer."""
    times = tuple(0.01 + 1e-7 * (n * 7919 % 1009 + rank) for n in range(durations))
    samples = Samples(
        timer="cpu",
        durations_s=times,
        block_s=(sum(times) / blocks,) * blocks,
        block_calls=(durations // blocks,) * blocks,
        first_step_s=1.0,
        warmup_s=times[:warmups],
        warmup_calls=warmups,
        flags=tuple(f"flag {number}".ljust(99, ".") for number in range(flags)),
    )
    known = dict.fromkeys((f"a fact with number {n}" for n in range(facts)), rank / 7)
    own = RankReport.of(samples, Work(samples=32), known, rank=rank, host=f"host-{rank // 8}")
    machine: Json = {"rank": {"torch.threads": 8, "torch.interop_threads": 8, "device": "H200"}}
    if rank % 8 == 0:
        machine["host"] = {f"gpu.devices.{n // 8}.fact_{n % 8}": "H200" for n in range(64)}
    return stored.dump(replace(own, machine=machine))


def simulate(size: int, load: tuple[int, ...]) -> tuple[float, ...]:
    """One benchmark on `size` ranks: rank zero's seconds, and the bytes."""

    def plane(rank: int) -> ControlPlane:
        return ControlPlane(store, World(rank=rank, size=size), timeout=timedelta(seconds=1))

    store, aggregate, seconds, written = dictionary_store(), RankAggregate(), 0.0, 0
    root = plane(0)
    reports = root.collect("samples", report(0, *load))
    for rank in range(size):
        if rank:
            other = plane(rank)
            other.collect("samples", report(rank, *load))
            written = max(written, other.traffic["bytes_written"])
        began = time.perf_counter()
        aggregate.add(stored.restore(RankReport, next(reports), "a report"))
        seconds += time.perf_counter() - began
    began = time.perf_counter()
    assert next(reports, None) is None  # it tidies up at the end
    merged = aggregate.merged(OWN)
    root.publish("result", {"problem": aggregate.error})
    seconds += time.perf_counter() - began
    assert (len(merged.samples.durations_s), len(merged.ranks)) == (load[0], size)
    other = plane(1)
    other.resynchronize(2)
    other.publish("result")
    bytes_at_root = tuple(root.traffic.values())
    return seconds, written, other.traffic["bytes_read"], *bytes_at_root


def measure(size: int, load: tuple[int, ...], turns: int) -> tuple[float, ...]:
    """The `COLUMNS`: the fastest of some turns, with the memory of one more."""
    seconds, *sizes = min(simulate(size, load) for _ in range(turns))
    tracemalloc.start()
    simulate(size, load)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return seconds, peak / 2**20, *sizes


def main(turns: int) -> int:
    """Print the table, and say whether the budget holds."""
    print(f"{'':26}" + "".join(f"{name:>14}" for name in COLUMNS))
    held = True
    for name, load in LOADS.items():
        few, many = (measure(size, load, turns) for size in SIZES)
        growth = (large / small for large, small in zip(many, few, strict=True))
        held = held and few[0] <= BUDGET_S and few[1] <= BUDGET_MIB
        labels = (*(f"{name}, {size} ranks" for size in SIZES), f"  x {SIZES[1] / SIZES[0]:.4g}")
        for label, row in zip(labels, (few, many, growth), strict=True):
            print(f"{label:26}" + "".join(f"{round(number, 3):>14}" for number in row))
    assert "torch" not in sys.modules
    print(f"budget: {BUDGET_S:g} s, {BUDGET_MIB:g} MiB at {SIZES[0]} ranks: held: {held}")
    return int(not held)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 3))
