"""torch.profiler traces for chrome://tracing and https://ui.perfetto.dev."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from torch.profiler import ProfilerAction, ProfilerActivity, record_function
from torch.profiler import profile as torch_profile

from gpubench_plugin.core.errors import ResultsError
from gpubench_plugin.environment.devices import synchronize
from gpubench_plugin.measure.probes.operators import operator_table

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from gpubench_plugin.config.sections import ProfilingSection
    from gpubench_plugin.core.records import Json

_ACTIVITIES: Final = {"cuda": ProfilerActivity.CUDA, "xpu": ProfilerActivity.XPU}


def profile(
    step: Callable[[], object],
    *,
    section: ProfilingSection,
    device: torch.device,
    path: Path | None,
) -> Json | None:
    """Run ``section.steps`` extra, untimed steps, and write their trace to `path` as JSON.

    Returns their operators, see :func:`.operator_table`; None without a path.

    One more step runs before them, with the profiler on and its events dropped: CUPTI, which traces
    the device, starts at the first of its calls. Every rank must call this, since the steps may
    communicate; those without a path run them unprofiled. The trace names the steps ``step 0``, ….

    Raises:
        ResultsError: the trace could not be written; an earlier file at `path` is intact.
    """
    if path is None:
        step()
        _run(step, section.steps)
        return None
    activities = [ProfilerActivity.CPU]
    if device.type in _ACTIVITIES:
        activities.append(_ACTIVITIES[device.type])
    with torch_profile(
        activities=activities,
        schedule=_first_dropped,
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


def _first_dropped(number: int) -> ProfilerAction:
    """What the profiler does in its step of that number."""
    return ProfilerAction.RECORD if number else ProfilerAction.WARMUP


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
            _export(profiler, temporary)
            temporary.replace(path)
    except (OSError, RuntimeError) as error:
        raise ResultsError(f"cannot write the profile to {path}: {error}") from error


def _export(profiler: torch_profile, path: Path) -> None:
    profiler.export_chrome_trace(str(path))
    if not path.exists():  # torch only logs the error
        raise OSError(errno.EIO, "torch wrote no trace; is the disk full?")
    with path.open("rb") as file:
        os.fsync(file.fileno())
