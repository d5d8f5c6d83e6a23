"""torch.profiler traces for chrome://tracing and https://ui.perfetto.dev, and their operators."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from operator import add, attrgetter, itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from torch.profiler import ProfilerAction, ProfilerActivity, record_function
from torch.profiler import profile as torch_profile

from gpubench_plugin.core.errors import ResultsError
from gpubench_plugin.environment.devices import synchronize
from gpubench_plugin.environment.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from gpubench_plugin.config.sections import ProfilingSection
    from gpubench_plugin.core.records import Json

_ACTIVITIES: Final = {"cuda": (ProfilerActivity.CUDA,), "xpu": (ProfilerActivity.XPU,)}
_LONGEST_NAME: Final = 120
_NO_WORK: Final = re.compile(
    r"step \d+|ProfilerStep.*|.*(threading\.py\(|_thread\.R?[Ll]ock|gpubench_plugin/session/).*"
)
"""Spans of whole steps, ours and torch's, and Python's waiting threads."""
_NO_KERNEL: Final = re.compile(r"Mem(cpy|set)\b")
_METHOD: Final = re.compile(r"<built-in method (\w+) of ([\w.]+) object at \w+>")


def profile(
    step: Callable[[], object],
    *,
    section: ProfilingSection,
    device: torch.device,
    path: Path | None,
) -> Json:
    """Run ``section.steps`` extra, untimed steps, and write their trace to `path` as JSON.

    Returns their operators, see :func:`.operator_table`; without a path none, and no kernels.

    One more step runs before them, with the profiler on and its events dropped: CUPTI, which traces
    the device, starts at the first of its calls. Every rank must call this, since the steps may
    communicate; those without a path run them unprofiled. The trace names the steps ``step 0``, ….

    Raises:
        ResultsError: the trace could not be written; an earlier file at `path` is intact.
    """
    if path is None:
        step()
        _run(step, section.steps)
        return {} if device.type == "cpu" else {"kernels": 0.0}  # the maximum over ranks counts
    with torch_profile(
        activities=[ProfilerActivity.CPU, *_ACTIVITIES.get(device.type, ())],
        schedule=lambda step: ProfilerAction.RECORD if step else ProfilerAction.WARMUP,
        record_shapes=section.record_shapes,
        with_stack=section.with_stack,
        acc_events=True,  # else torch 2.11 warns that events of past cycles are dropped
    ) as profiler:
        step()
        synchronize(device)  # else the rest of this step would be in the trace
        profiler.step()
        _run(step, section.steps)
        synchronize(device)
    _write(profiler, path)
    return operator_table(
        profiler.key_averages(), steps=section.steps, on_device=device.type in _ACTIVITIES
    )


def _run(step: Callable[[], object], steps: int) -> None:
    for number in range(steps):
        with record_function(f"step {number}"):
            step()


def _write(profiler: torch_profile, path: Path) -> None:
    """Write the trace atomically."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # torch leaves temporary files beside an unfinished trace; they go with the folder.
        with TemporaryDirectory(dir=path.parent, prefix=".trace-") as folder:
            temporary = Path(folder, path.name)
            profiler.export_chrome_trace(str(temporary))
            with temporary.open("rb") as file:  # missing if torch has only logged an error
                os.fsync(file.fileno())
            temporary.replace(path)
    except (OSError, RuntimeError) as error:
        raise ResultsError(f"cannot write the profile to {path}: {error}") from error


def operator_table(averages: Sequence[Any], *, steps: int, on_device: bool) -> Json:
    """All operators, those with the most time of their own first, for the record.

    `averages` are ``key_averages()`` of `steps` profiled steps; all numbers are per step. The time
    is the device's, of the kernels that an operator starts, or the processor's where no device has
    worked. ``self_s`` is without the operators that an operator calls, ``total_s`` with them. With
    stacks, Python functions are among them, but for those that wait for other threads.
    """
    places = ("device", "cpu") if on_device else ("cpu",)
    for place in places:
        own_us, total_us = attrgetter(f"self_{place}_time_total"), attrgetter(f"{place}_time_total")
        sums: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
        for average in averages:
            if average.device_type.name == "CPU" and not _NO_WORK.fullmatch(average.key):
                name = redact(_METHOD.sub(r"\2.\1", average.key))[:_LONGEST_NAME]
                own_s, total_s = (us(average) * 1e-6 for us in (own_us, total_us))
                sums[name] = [*map(add, sums[name], (average.count, own_s, total_s))]
        if any(own_s for _, own_s, _ in sums.values()):
            break
    operators = [
        {"name": name, "calls": calls / steps, "self_s": own_s / steps, "total_s": total_s / steps}
        for name, (calls, own_s, total_s) in sums.items()
    ]
    operators.sort(key=itemgetter("self_s"), reverse=True)
    # Spans of the host are drawn on the device, too.
    ran = [a for a in averages if a.device_type.name != "CPU" and not a.is_user_annotation]
    kernels = sum(a.count for a in ran if not _NO_KERNEL.match(a.key)) / steps
    table = {"time_of": place, "steps": steps, "operators": operators}
    return {**table, "kernels": kernels} if on_device else table
