"""Checks of each GPU by NVML, https://docs.nvidia.com/deploy/nvml-api/."""

from __future__ import annotations

from typing import Any, Final

from gpubench_plugin.cli.doctor.machine import Fact, Gpu, Unknown
from gpubench_plugin.core.format import byte_size, counted
from gpubench_plugin.environment import nvml
from gpubench_plugin.environment.hardware import held_clock_mhz

_UNCORRECTED: Final = 1  # NVML_MEMORY_ERROR_TYPE_UNCORRECTED
_SINCE_START: Final = 0  # NVML_VOLATILE_ECC
# Memory of a GPU without processes that the driver may hold, ECC and its own.
_IDLE_BYTES: Final = 2 * 2**30


def clocks(gpu: Gpu) -> Fact:
    """Whether the clock is held, judged by that of an idle GPU."""
    clock = gpu.require("GetClockInfo", nvml.GRAPHICS_CLOCK)
    highest = gpu.require("GetMaxClockInfo", nvml.GRAPHICS_CLOCK)
    value = f"{clock} of {highest} MHz"
    lock = (
        f"sudo nvidia-smi -i {gpu.index} --lock-gpu-clocks=MHZ, with one that it holds under load"
    )
    held = held_clock_mhz(clock, highest=highest, utilization=gpu.answer("GetUtilizationRates"))
    if held is None:
        raise Unknown(f"{value}; whether they are locked shows only on an idle GPU", lock)
    if held:
        return f"{value} while idle: locked, unless it has worked just now", ""
    return f"not locked: {value} while idle", lock


def persistence(gpu: Gpu) -> Fact:
    """Whether the driver stays loaded without a client, with the clocks that were set."""
    if gpu.require("GetPersistenceMode"):
        return "on", ""
    return (
        "off: the driver starts anew with each process, and forgets set clocks",
        f"sudo nvidia-smi -i {gpu.index} --persistence-mode=1",
    )


def ecc(gpu: Gpu) -> Fact:
    """Error correction: whether it is about to change, and what it could not correct."""
    value, pending = ("on" if mode else "off" for mode in gpu.require("GetEccMode"))
    if errors := gpu.answer("GetTotalEccErrors", _UNCORRECTED, _SINCE_START):
        return (
            f"{value}; {counted(errors, 'uncorrected error')} since the driver started",
            f"sudo nvidia-smi -i {gpu.index} --gpu-reset, and have the GPU examined",
        )
    if any((gpu.answer("GetRemappedRows") or ())[2:]):
        return f"{value}; rows of its memory wait to be replaced", "have the GPU reset"
    if value != pending:
        return f"{value}, {pending} after a reset", "reset the GPU before comparing runs"
    return value, ""


def mig(gpu: Gpu) -> Fact:
    """Whether the GPU is sliced: a slice shares memory bandwidth, power and clocks."""
    modes = nvml.mig_modes(gpu.library, gpu.handle)
    if modes is None:
        return "not supported", ""
    is_sliced, will_be_sliced = modes
    if is_sliced:
        return (
            "on: slices share power and clocks, and have no known peak for MFU",
            f"sudo nvidia-smi -i {gpu.index} --multi-instance-gpu=0, or keep the other slices idle",
        )
    if will_be_sliced:
        return "off, on after a reset", "reset the GPU before comparing runs"
    return "off", ""


def power_limit(gpu: Gpu) -> Fact:
    """The enforced limit against the GPU's default and highest."""
    limit = gpu.require("GetEnforcedPowerLimit") / 1000
    default = gpu.require("GetPowerManagementDefaultLimit") / 1000
    constraints: Any = gpu.answer("GetPowerManagementLimitConstraints")
    most = "" if constraints is None else f", at most {constraints[1] / 1000:.0f}"
    advice = f"sudo nvidia-smi -i {gpu.index} --power-limit={default:.0f}"
    return f"{limit:.0f} W (default {default:.0f}{most})", advice * (limit < default)


def processes(gpu: Gpu) -> Fact:
    """Other processes on the GPU, or their traces: those of other containers have no id here."""
    kinds = ("Compute", "Graphics")  # a process may be both
    answers = (gpu.answer(f"Get{kind}RunningProcesses") or () for kind in kinds)
    listed = {process.pid: process for processes in answers for process in processes}
    utilization = gpu.answer("GetUtilizationRates")
    memory = gpu.require("GetMemoryInfo")
    in_use = "" if utilization is None else f"{utilization.gpu}% in use, "
    value = f"{in_use}{_size(memory.free)} of {_size(memory.total)} of memory free"
    if listed:
        names = ", ".join(_process(process) for process in listed.values())
        return f"{value}: {names}", "wait for them, or end them"
    is_held = memory.total - memory.free > _IDLE_BYTES
    if (utilization is not None and utilization.gpu) or is_held:
        return f"{value}; processes that are not shown here use it", "wait for them"
    return value, ""


def _process(process: Any) -> str:
    memory = process.usedGpuMemory
    return f"{process.pid}" + ("" if memory is None else f" ({_size(memory)})")


def _size(memory_bytes: int) -> str:
    return byte_size(memory_bytes, digits=3)
