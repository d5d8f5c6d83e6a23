"""How often a number is in doubt on an idle machine: the page docs/evidence/idle_machine.md.

    python tools/evidence/idle_machine.py record [LAUNCHES]     adds launches to the recording
    python tools/evidence/idle_machine.py [--against=CHECKOUT]  replays it, and writes the page

A launch is a fresh process that times eight steps for some seconds each. The real loop replays
their rounds on a clock that only the step moves: it stops where it would have stopped.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

# Last: the package may be that of another checkout, which PYTHONPATH names.
sys.path.append(str(Path(__file__).resolve().parents[2]))

from gpubench_plugin.core.quality_flags import CONTENDED, doubtful_flags
from gpubench_plugin.measure.probes.interference import Contention
from tests.support import virtual_steps as steps
from tools.evidence.pages import Table, write

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.virtual_steps import Course

RECORDING = Path(__file__).resolve().parents[2] / "tests" / "support" / "data" / "idle_machine.npz"
SECONDS = 3.5
ROUND_S = 0.001
# A rounding of 0.05%, finer than the noise of any round; 16 bits reach from 10 ns to over a day.
RESOLUTION = 0.0005
PROFILES = {"quick": "quick", "no profile": None}
COLUMNS = (
    *(f"{what}, {name}" for name in PROFILES for what in ("measured", "in doubt")),
    *("doubts, no profile", "median half-width"),
)

INTRODUCTION = """# How often a number is in doubt on an idle machine

Written by `python tools/evidence/idle_machine.py --against=CHECKOUT`; in brackets what commit
`f2007b9c` told, which went on to the limit of time where there was no interval. {launches}
launches, recorded from {first} to {last} on a cloud machine of two processors that did nothing
else, whose neighbours did: {steps} steps for 3.5 s each, replayed by the real loop, which ends
where it would have ended. Whether others used the processors is as it was recorded. *Measured* is
the mean time of the timed calls.

"""


def recorded_steps() -> dict[str, Callable[[], object]]:
    """What an ordinary suite times, from 10 µs to 20 ms."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    torch.set_num_threads(1)
    document = {str(n): [n * i for i in range(30)] for n in range(20)}
    numbers = np.random.default_rng(0).random(20_000)
    matrix, images = torch.randn(256, 256), torch.randn(4, 16, 64, 64)
    perceptron = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.SGD(perceptron.parameters(), 0.01)
    samples, labels = torch.randn(32, 64), torch.randint(10, (32,))
    convolution = nn.Conv2d(16, 32, 3)
    network = nn.Sequential(*(nn.Conv2d(16, 16, 3, padding=1) for _ in range(6)))

    def train() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(perceptron(samples), labels).backward()
        optimizer.step()

    return {
        "sum of a range": lambda: sum(range(1000)),
        "sleep": lambda: time.sleep(0.002),
        "JSON": lambda: json.dumps(document),
        "sort": lambda: np.sort(numbers),
        "product": lambda: matrix @ matrix,
        "training of a perceptron": train,
        "convolution": lambda: convolution(images),
        "gradients of six convolutions": lambda: network(images).sum().backward(),
    }


def record_launch() -> None:
    """Print the rounds of each step: medians of calls of a millisecond in all, in nanoseconds."""
    now, found = time.perf_counter_ns, {}
    for name, step in recorded_steps().items():
        step()
        began = now()
        step()
        width = max(1, math.ceil(ROUND_S * 1e9 / (now() - began)))
        rounds, contention, start = list[float](), Contention(), now()
        with contention:
            while now() - start < SECONDS * 1e9:
                durations = []
                for _ in range(width):
                    at = now()
                    step()
                    durations.append(now() - at)
                rounds.append(median(durations))
        contended = CONTENDED in contention.flags
        found[name] = {"width": width, "contended": contended, "rounds_ns": rounds}
    json.dump(found, sys.stdout)


def record(launches: int) -> None:
    """Add so many launches to the recording."""
    arrays = dict(np.load(RECORDING)) if RECORDING.exists() else {}
    first = len({name.partition("/")[0] for name in arrays})
    for number in range(first, first + launches):
        command = [sys.executable, __file__, "record-launch"]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
        for name, found in json.loads(output).items():
            logs = np.log(np.array(found["rounds_ns"])) / RESOLUTION
            head = [int(time.time()) >> 16, int(time.time()) & 0xFFFF]
            head += [found["width"], found["contended"]]
            arrays[f"{number}/{name}"] = np.array([*head, *logs.round()], dtype=np.uint16)
        np.savez_compressed(RECORDING, **arrays)


@dataclass(frozen=True)
class Trace:
    """The rounds of one step in one launch; a round has `width` calls."""

    when: int
    width: int
    contended: bool
    rounds_ns: Any

    @classmethod
    def of(cls, numbers: Any) -> Trace:
        """Read back what :func:`record` stored."""
        high, low, width, contended = map(int, numbers[:4])
        rounds_ns = np.exp(numbers[4:].astype(np.float64) * RESOLUTION)
        return cls(high << 16 | low, width, bool(contended), rounds_ns)

    def course(self) -> Course:
        """The calls in their order, from the start again after the last."""
        rounds_ns, width = self.rounds_ns.tolist(), self.width
        return lambda _, call: rounds_ns[call // width % len(rounds_ns)]


def counted(traces: list[Trace]) -> dict[str, str]:
    """What the loop tells of the `traces`."""
    cells, doubts, widths = {}, Counter[str](), []
    for title, profile in PROFILES.items():
        doubtful, measured_s = 0, 0.0
        for trace in traces:
            samples = steps.measured(trace.course(), step_s=1e-9, profile=profile)
            flags = doubtful_flags((*samples.flags, *["contended"] * trace.contended))
            doubtful += bool(flags)
            measured_s += sum(samples.block_s)
            if profile is None:
                doubts.update(flags)
                ends = steps.told(samples)
                widths += [] if flags or ends is None else [(ends[2] - ends[0]) / 2 / ends[1]]
        cells[f"measured, {title}"] = f"{measured_s / len(traces):.2f} s"
        cells[f"in doubt, {title}"] = f"{doubtful / len(traces):.0%}"
    names = [f"`{name}` {number / len(traces):.0%}" for name, number in doubts.most_common()]
    cells["doubts, no profile"] = ", ".join(names)
    cells["median half-width"] = f"{median(widths):.1%}" if widths else "none"
    return cells


def replay() -> None:
    """Write the page."""
    by_step: dict[str, list[Trace]] = {}
    for key, numbers in np.load(RECORDING).items():
        by_step.setdefault(key.partition("/")[2], []).append(Trace.of(numbers))
    every = [trace for traces in by_step.values() for trace in traces]
    times = [time.strftime("%Y-%m-%d %H:%M", time.gmtime(trace.when)) for trace in every]
    introduction = INTRODUCTION.format(
        launches=len(every) // len(by_step), steps=len(by_step), first=min(times), last=max(times)
    )
    cases = {**by_step, "all": every}
    write("idle_machine.md", introduction, [Table("Replayed", COLUMNS, cases)], counted)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["record-launch"]:
            record_launch()
        case ["record", *number]:
            record(int(number[0]) if number else 20)
        case _:
            replay()
