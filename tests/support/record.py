"""Records launches for the replay: fresh processes, each timing five small torch benchmarks.

``python tests/support/record.py FILE [LAUNCHES]`` writes for each launch and benchmark all 160
durations in the order of the calls, in nanoseconds per call, and that in the order of the launches.
Their sum is the total: nothing but the clock is read between them. Beside them stands the share of
that time, in thousandths, in which the process waited for a processor, or the host gave it to
another machine. Every 50th call of ``stalling`` takes about 50 times as long as the others.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

DURATIONS = 160
DURATION_S = 0.001
WARM_UP_S = 0.2


def benchmarks() -> dict[str, Callable[[], object]]:
    import torch
    from torch import nn

    torch.manual_seed(0)
    torch.set_num_threads(1)
    a, b = torch.randn(192, 192), torch.randn(192, 192)
    image, convolution = torch.randn(4, 16, 32, 32), nn.Conv2d(16, 16, 3)
    rows = torch.randn(256, 512)
    network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    batch, labels = torch.randn(64, 64), torch.randint(10, (64,))

    def train() -> None:
        optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(network(batch), labels).backward()
        optimizer.step()

    calls = count()

    def stall() -> None:
        for _ in range(1 if next(calls) % 50 else 50):
            torch.relu(rows)

    return {
        "matmul": lambda: a @ b,
        "convolution": lambda: convolution(image),
        "softmax": lambda: torch.softmax(rows, dim=1),
        "mlp_step": train,
        "stalling": stall,
    }


def durations_ns(call: Callable[[], object]) -> tuple[list[int], int]:
    """Of each duration the nanoseconds per call; and the thousandths of the time spent waiting."""
    start, calls = time.perf_counter(), 0
    while time.perf_counter() - start < WARM_UP_S:
        call()
        calls += 1
    width = max(1, round(calls * DURATION_S / WARM_UP_S))
    durations = []
    began, waited = time.perf_counter_ns(), waited_ns()
    for _ in range(DURATIONS):
        before = time.perf_counter_ns()
        for _ in range(width):
            call()
        durations.append(round((time.perf_counter_ns() - before) / width))
    share = (waited_ns() - waited) / (time.perf_counter_ns() - began)
    return durations, round(1000 * share)


def waited_ns() -> int:
    """How long this thread has waited for a processor, and how long others had them all."""
    queued = int(Path("/proc/thread-self/schedstat").read_text().split()[1])
    stolen = int(Path("/proc/stat").read_text().split()[8])
    return queued + stolen * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def launch() -> dict[str, tuple[list[int], int]]:
    """The durations of each benchmark in this process, and how much of the time it waited."""
    gc.disable()
    return {name: durations_ns(call) for name, call in benchmarks().items()}


def main() -> None:
    if len(sys.argv) == 1:
        sys.stdout.write(json.dumps(launch()))
        return
    launches = int(sys.argv[2]) if len(sys.argv) > 2 else 64
    command = [sys.executable, __file__]
    outputs = [subprocess.run(command, check=True, stdout=-1).stdout for _ in range(launches)]
    seen = [json.loads(output) for output in outputs]
    recorded = {
        "what": "160 durations of 1 ms, in the order of calls, of fresh processes of torch on "
        "a CPU, one thread, in ns per call, in the order of the launches; see "
        "tests/support/record.py",
        "waited": {name: [one[name][1] for one in seen] for name in seen[0]},
        "launches": {name: [one[name][0] for one in seen] for name in seen[0]},
    }
    # One line for each launch.
    text = json.dumps(recorded, separators=(",", ":")).replace("[[", "[\n[").replace("],", "],\n")
    Path(sys.argv[1]).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
