"""Checks of each GPU by NVML, https://docs.nvidia.com/deploy/nvml-api/."""

from __future__ import annotations

from typing import Any, Final

from gpubench_plugin.cli.doctor.machine import Finding, Gpu, ok, unknown, warning
from gpubench_plugin.core.format import byte_size, counted
from gpubench_plugin.environment import nvml
from gpubench_plugin.environment.hardware import held_clock_mhz

_UNCORRECTED: Final = 1  # NVML_MEMORY_ERROR_TYPE_UNCORRECTED
_SINCE_START: Final = 0  # NVML_VOLATILE_ECC
# Memory of a GPU without processes that the driver may hold, ECC and its own.
_IDLE_BYTES: Final = 2 * 2**30

_NO_ANSWER: Final = "the GPU or its driver does not tell"


def clocks(gpu: Gpu) -> Finding:
    """Whether the clock is held, judged by that of an idle GPU."""
    clock, highest = (
        gpu.answer(f"Get{kind}Info", nvml.GRAPHICS_CLOCK) for kind in ("Clock", "MaxClock")
    )
    if clock is None or not highest:
        return unknown(_NO_ANSWER)
    value = f"{clock} of {highest} MHz"
    held = held_clock_mhz(clock, highest=highest, utilization=gpu.answer("GetUtilizationRates"))
    if held is None:
        return unknown(f"{value}; whether they are locked shows only on an idle GPU", _lock(gpu))
    if held:
        return ok(f"{value} while idle: locked, unless it has worked just now")
    return warning(f"not locked: {value} while idle", _lock(gpu))


def _lock(gpu: Gpu) -> str:
    return (
        f"sudo nvidia-smi -i {gpu.index} --lock-gpu-clocks=MHZ, with one that it holds under load"
    )


def persistence(gpu: Gpu) -> Finding:
    """Whether the driver stays loaded without a client, with the clocks that were set."""
    mode = gpu.answer("GetPersistenceMode")
    if mode is None:
        return unknown(_NO_ANSWER)
    if mode:
        return ok("on")
    return warning(
        "off: the driver starts anew with each process, and forgets set clocks",
        f"sudo nvidia-smi -i {gpu.index} --persistence-mode=1",
    )


def ecc(gpu: Gpu) -> Finding:
    """Error correction: whether it is about to change, and what it could not correct."""
    modes = gpu.answer("GetEccMode")
    if modes is None:
        return unknown(_NO_ANSWER)
    value, pending = ("on" if mode else "off" for mode in modes)
    errors = gpu.answer("GetTotalEccErrors", _UNCORRECTED, _SINCE_START)
    if errors:
        return warning(
            f"{value}; {counted(errors, 'uncorrected error')} since the driver started",
            f"sudo nvidia-smi -i {gpu.index} --gpu-reset, and have the GPU examined",
        )
    remapped = gpu.answer("GetRemappedRows") or (0, 0, 0, 0)
    if remapped[2] or remapped[3]:
        return warning(f"{value}; rows of its memory wait to be replaced", "have the GPU reset")
    if value != pending:
        return warning(f"{value}, {pending} after a reset", "reset the GPU before comparing runs")
    return ok(value)


def mig(gpu: Gpu) -> Finding:
    """Whether the GPU is sliced: a slice shares memory bandwidth, power and clocks."""
    modes = nvml.mig_modes(gpu.library, gpu.handle)
    if modes is None:
        return ok("not supported")
    is_sliced, will_be_sliced = modes
    if is_sliced:
        return warning(
            "on: slices share power and clocks, and have no known peak for MFU",
            f"sudo nvidia-smi -i {gpu.index} --multi-instance-gpu=0, or keep the other slices idle",
        )
    if will_be_sliced:
        return warning("off, on after a reset", "reset the GPU before comparing runs")
    return ok("off")


def power_limit(gpu: Gpu) -> Finding:
    """The enforced limit against the GPU's default and highest."""
    limit = gpu.answer("GetEnforcedPowerLimit")
    default = gpu.answer("GetPowerManagementDefaultLimit")
    if limit is None or default is None:
        return unknown(_NO_ANSWER)
    constraints: Any = gpu.answer("GetPowerManagementLimitConstraints")
    most = "" if constraints is None else f", at most {constraints[1] / 1000:.0f}"
    value = f"{limit / 1000:.0f} W (default {default / 1000:.0f}{most})"
    if limit >= default:
        return ok(value)
    return warning(value, f"sudo nvidia-smi -i {gpu.index} --power-limit={default / 1000:.0f}")


def processes(gpu: Gpu) -> Finding:
    """Other processes on the GPU, or their traces: those of other containers have no id here."""
    kinds = ("Compute", "Graphics")  # a process may be both
    answers = (gpu.answer(f"Get{kind}RunningProcesses") or () for kind in kinds)
    listed = {process.pid: process for processes in answers for process in processes}
    utilization = gpu.answer("GetUtilizationRates")
    memory = gpu.answer("GetMemoryInfo")
    in_use = "" if utilization is None else f"{utilization.gpu}% in use, "
    free = "" if memory is None else f"{_size(memory.free)} of {_size(memory.total)} of memory free"
    value = f"{in_use}{free}".rstrip(", ") or _NO_ANSWER
    if listed:
        names = ", ".join(_process(process) for process in listed.values())
        return warning(f"{value}: {names}", "wait for them, or end them")
    is_held = memory is not None and memory.total - memory.free > _IDLE_BYTES
    if (utilization is not None and utilization.gpu) or is_held:
        return warning(f"{value}; processes that are not shown here use it", "wait for them")
    return ok(value) if in_use or free else unknown(value)


def _process(process: Any) -> str:
    memory = process.usedGpuMemory
    return f"{process.pid}" + ("" if memory is None else f" ({_size(memory)})")


def _size(memory_bytes: int) -> str:
    return byte_size(memory_bytes, digits=3)
