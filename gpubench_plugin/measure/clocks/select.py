"""Clock selection by device."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal

import torch

from gpubench_plugin.core.errors import Unsupported
from gpubench_plugin.measure.clocks.cuda_device import TorchCuda
from gpubench_plugin.measure.clocks.cuda_kernel import CudaKernelClock
from gpubench_plugin.measure.clocks.cuda_step import CudaStepClock
from gpubench_plugin.measure.clocks.host import CpuClock, SynchronisedClock

if TYPE_CHECKING:
    from gpubench_plugin.config.marks import Timing
    from gpubench_plugin.measure.clocks.base import Clock


def clock_for(
    device: torch.device, *, timing: Timing = "step", cache: Literal["hot", "cold"] = "hot"
) -> Clock:
    """Clock for `device`; call after setting the number of CPU threads.

    Only CUDA knows the `timing` ``kernel``, and only there the `cache` matters.

    Raises:
        Unsupported: there is no clock for this type of device.
    """
    match device.type:
        case "cpu":
            return CpuClock(one_thread=torch.get_num_threads() == 1)
        case "cuda" if timing == "kernel":
            return CudaKernelClock(TorchCuda(device), cache=cache)
        case "cuda":
            return CudaStepClock(TorchCuda(device))
        case "mps":
            return SynchronisedClock(torch.mps.synchronize, timer="mps_synchronised")
        case "xpu":
            wait = partial(torch.xpu.synchronize, device)
            return SynchronisedClock(wait, timer="xpu_synchronised")
        case other:
            raise Unsupported(f"no clock for device type {other!r}")
