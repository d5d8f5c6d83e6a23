"""Clock selection by device."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from gpubench_plugin.errors import Unsupported
from gpubench_plugin.measure.clocks.cuda_device import TorchCuda
from gpubench_plugin.measure.clocks.cuda_kernel import CudaKernelClock
from gpubench_plugin.measure.clocks.cuda_step import CudaStepClock
from gpubench_plugin.measure.clocks.host import CpuClock, SynchronisedClock

if TYPE_CHECKING:
    from gpubench_plugin.config import MeasureSection, Timing
    from gpubench_plugin.measure.clocks.base import Clock


def clock_for(device: torch.device, section: MeasureSection, *, marked: Timing = "step") -> Clock:
    """Clock for `device`; call after setting the number of CPU threads.

    `marked` is the timing that the benchmark's mark states, for ``measure.timing=auto``.

    Raises:
        Unsupported: ``measure.timing=kernel`` on a device other than CUDA, or no clock for it.
    """
    timing = section.timing_on(device.type, marked)
    if timing == "kernel" and device.type != "cuda":
        raise Unsupported(f"measure.timing=kernel requires a CUDA device, not {device.type!r}")
    match device.type:
        case "cpu":
            return CpuClock(one_thread=torch.get_num_threads() == 1)
        case "cuda" if timing == "kernel":
            return CudaKernelClock(TorchCuda(device), cache=section.cache)
        case "cuda":
            return CudaStepClock(TorchCuda(device))
        case "mps":
            return SynchronisedClock(torch.mps.synchronize, timer="mps_synchronised")
        case "xpu":
            wait = partial(torch.xpu.synchronize, device)
            return SynchronisedClock(wait, timer="xpu_synchronised")
        case other:
            raise Unsupported(f"no clock for device type {other!r}")
