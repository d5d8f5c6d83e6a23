"""How long each phase of a layer takes, in calls of their own beside the timed ones."""

from __future__ import annotations

from itertools import pairwise
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpubench_plugin.workloads.moe.layer import Stage


def phase_times(stages: Iterable[Stage], *, device: torch.device, calls: int) -> dict[str, float]:
    """The median over some `calls` of each stage's seconds, by name; each feeds the next.

    On CUDA between events of the stream, so that it is the device's time, with what it waits for;
    elsewhere by the host's clock. Where a phase exchanges something, waiting for the other ranks
    is part of it.
    """
    measured = _on_stream if device.type == "cuda" else _on_host
    way = list(stages)
    rows = [measured(way) for _ in range(calls)]
    return {name: median(row[place] for row in rows) for place, (name, _) in enumerate(way)}


def _on_host(stages: list[Stage]) -> list[float]:
    value, times = None, [perf_counter()]
    for _, run in stages:
        value = run(value)
        times.append(perf_counter())
    return [end - start for start, end in pairwise(times)]


def _on_stream(stages: list[Stage]) -> list[float]:
    value, events = None, [_recorded()]
    for _, run in stages:
        value = run(value)
        events.append(_recorded())
    events[-1].synchronize()
    return [start.elapsed_time(end) / 1e3 for start, end in pairwise(events)]


def _recorded() -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event
