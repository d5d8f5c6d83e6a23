"""The CUDA devices of this process, without starting CUDA in it.

Reading ``torch.cuda.get_device_properties`` starts CUDA: after that no forked child can use it, and
the controller of ranks would hold it beside them. ``torch.cuda.is_available`` and, where NVML does
not answer, ``torch.cuda.device_count`` call ``cuInit``, with which torch forbids CUDA to forked
children as well (https://docs.pytorch.org/docs/stable/notes/multiprocessing.html). So NVML is read,
and where it cannot tell which devices CUDA would show, a child process asks CUDA.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.environment import nvml
from gpubench_plugin.system.child_process import ChildError, facts_of

_VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
_AMD_DRIVER: Final = Path("/dev/kfd")
_CHILD: Final = """\
import json
import torch

count = torch.cuda.device_count() if torch.cuda.is_available() else 0
properties = map(torch.cuda.get_device_properties, range(count))
print(json.dumps([{"name": p.name, "memory_bytes": p.total_memory} for p in properties]))
"""


@dataclass(frozen=True, kw_only=True)
class CudaDevice:
    """A device by the name that torch reports, and its memory that CUDA can use.

    `free_bytes` is what no process uses now, None if unknown.
    """

    name: str
    memory_bytes: int
    free_bytes: int | None = None


def visible() -> tuple[CudaDevice, ...]:
    """The devices that torch can use in this process, in CUDA's order.

    Raises:
        UsageProblem: there is a driver, and a process that asks it for its devices fails.
    """
    import torch

    if not torch.backends.cuda.is_built():
        return ()
    if torch.cuda.is_initialized():
        return started(torch.cuda)
    devices = None if torch.version.cuda is None else _from_nvml(torch.version.cuda)
    if devices is not None:
        return devices
    has_driver = _AMD_DRIVER.exists() if torch.version.hip else _has_nvidia_driver()
    return _from_child(os.environ.get(_VISIBLE)) if has_driver else ()


def started(backend: ModuleType) -> tuple[CudaDevice, ...]:
    """The devices of a `backend` of torch, such as ``torch.cuda``, which this starts."""
    properties = map(backend.get_device_properties, range(backend.device_count()))
    return tuple(CudaDevice(name=p.name, memory_bytes=p.total_memory) for p in properties)


def _from_nvml(torch_cuda: str) -> tuple[CudaDevice, ...] | None:
    """Devices by NVML; None where it cannot tell what CUDA would show to a torch of `torch_cuda`.

    That is so of a driver older than torch's CUDA (unless a compatibility package helps), of GPUs
    in slices, and of different GPUs: CUDA puts the fastest first unless ``CUDA_DEVICE_ORDER`` is
    ``PCI_BUS_ID``, NVML's order. See "CUDA Environment Variables" in
    https://docs.nvidia.com/cuda/cuda-programming-guide/.
    """
    with nvml.opened() as library:
        driver_cuda = nvml.driver_cuda(library)
        if driver_cuda is None or nvml.is_old_driver(driver_cuda, torch_cuda):
            return None
        handles = nvml.handles(library)
        if handles is None or None in handles:
            return None
        if any((nvml.mig_modes(library, handle) or (False,))[0] for handle in handles):
            return None
        uuids = [nvml.answer(library, "nvmlDeviceGetUUID", h) or "" for h in handles]
        indices = visible_indices(os.environ.get(_VISIBLE), uuids)
        devices = [_device(library, handle) for handle in handles]
        kinds = {device and (device.name, device.memory_bytes) for device in devices}
        if indices is None or not is_in_bus_order(len(kinds), os.environ):
            return None
        chosen = [devices[index] for index in indices]
    return None if None in chosen else tuple(filter(None, chosen))


def is_in_bus_order(kinds: int, environ: Mapping[str, str]) -> bool:
    """Whether CUDA lists its devices in NVML's order, or as the environment names them by UUID.

    Without ``CUDA_DEVICE_ORDER=PCI_BUS_ID`` it does so only for GPUs of one kind.
    """
    return (
        kinds == 1
        or environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
        or environ.get(_VISIBLE, "").startswith("GPU-")
    )


def visible_indices(variable: str | None, uuids: Sequence[str]) -> list[int] | None:
    """Indices of the GPUs `uuids` that ``CUDA_VISIBLE_DEVICES`` shows, in its order.

    None for a form that CUDA is to judge: a slice, a wrong or a repeated entry.
    """
    if variable is None:
        return [*range(len(uuids))]
    entries = [entry.strip() for entry in variable.split(",")]
    if entries in ([""], ["-1"]):
        return []
    numbers = {str(number): number for number in range(len(uuids))}
    names = numbers | {uuid: number for number, uuid in enumerate(uuids)}
    indices = [names.get(entry, -1) for entry in entries]
    return None if -1 in indices or len({*indices}) < len(indices) else indices


def _device(library: Any, handle: Any) -> CudaDevice | None:
    """Name and memory by `handle`; None if it has none of its own, as with unified memory.

    Of the total a part is reserved for the driver, which CUDA does not count. Only the newer form
    of the answer tells it (drivers from 510 on).
    """
    name = nvml.answer(library, "nvmlDeviceGetName", handle)
    version = getattr(library, "nvmlMemory_v2", 0)
    memory = nvml.answer(library, "nvmlDeviceGetMemoryInfo", handle, version=version)
    if name is None or memory is None:
        return None
    usable = memory.total - memory.reserved
    return CudaDevice(name=name, memory_bytes=usable, free_bytes=memory.free)


def _has_nvidia_driver() -> bool:
    """Whether CUDA's driver library can be loaded, which starts nothing yet."""
    with suppress(OSError):
        ctypes.CDLL("libcuda.so.1")
        return True
    return False


@cache
def _from_child(variable: str | None) -> tuple[CudaDevice, ...]:
    """Devices that CUDA shows a process, for each value of ``CUDA_VISIBLE_DEVICES`` once."""
    try:
        devices = facts_of([sys.executable, "-P", "-c", _CHILD])
    except ChildError as error:
        raise UsageProblem(
            f"--device=cuda: a process that asks CUDA for its devices fails: {error}; "
            "--device=cpu measures without them"
        ) from error
    return tuple(CudaDevice(**facts) for facts in devices)
