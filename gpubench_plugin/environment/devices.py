"""Devices: discovery, resolution of names, and synchronization."""

from __future__ import annotations

import platform
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Final

from gpubench_plugin.core.errors import MissingPackage, UsageProblem, invalid_choice
from gpubench_plugin.environment import cuda_devices
from gpubench_plugin.environment.torch_use import imported_torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch


CPU_FILE: Final = Path("/proc/cpuinfo")

TYPES: Final = ("cuda", "mps", "xpu", "cpu")
"""Device types in the order of preference for ``auto``."""

_ALIASES: Final = {
    **dict.fromkeys(("gpu", "nvidia", "rocm", "hip", "amd"), ("cuda",)),
    **dict.fromkeys(("metal", "apple", "mac"), ("mps",)),
    **dict.fromkeys(("intel", "sycl"), ("xpu",)),
    **dict.fromkeys(("host", "processor"), ("cpu",)),
    **dict.fromkeys(("tpu", "npu"), ()),
}
"""Other words for device types. torch's ROCm builds call their devices cuda."""

_GIB: Final = 2**30


@dataclass(frozen=True, kw_only=True)
class Device:
    """A device: torch name, model name, and own memory in GiB (None for a CPU).

    `free_gib` of it no process used when it was looked up; None if unknown.
    `device_count` is the number of such devices on the host; None for a CPU, which ranks share.
    """

    torch_name: str
    model: str
    memory_gib: float | None
    free_gib: float | None = None
    device_count: int | None = None

    @property
    def type(self) -> str:
        """``cpu``, ``cuda``, ``mps`` or ``xpu``."""
        return self.torch_name.partition(":")[0]


def find(name: str, *, local_rank: int = 0) -> Device:
    """Resolve `name` for this rank.

    ``auto`` is the best available type; a type without an index means the local rank's device.
    torch is imported for a CPU, too: benchmarks that use it record its version and threads.

    Raises:
        MissingPackage: torch is not installed, or hidden by what bears its name.
        UsageProblem: there is no such device, or torch is broken.
    """
    kind, index = check_name(name)
    problem = "torch is not installed"
    try:
        import torch
    except (Exception, SystemExit) as error:  # not installed, or a part that it needs is not
        if not isinstance(error, ModuleNotFoundError) or error.name != "torch":
            reason = f"{type(error).__name__}: {error}".partition("\n")[0]
            raise UsageProblem(f"torch cannot be imported: {reason}") from error
    else:
        problem = f"{torch!r} is not the library torch"
    if imported_torch() is None:
        raise MissingPackage(
            problem, package="torch", install="pip install 'pytest-gpubench[torch]'"
        )
    if name == "auto":
        kind, devices = next((t, group) for t in TYPES if (group := _available(t)))
    else:
        devices = _available(kind)
    if not devices:
        available = ", ".join(t for t in TYPES if _available(t))
        raise UsageProblem(
            f"--device={name}: torch {torch.__version__} {_missing_support(kind)}; available: "
            f"{available}"
        )
    number = int(index) if index else local_rank if kind in {"cuda", "xpu"} else 0
    if number >= len(devices):
        last_device = f"{kind}:{len(devices) - 1}"
        raise UsageProblem(
            f"--device={name}: this rank has no {kind}:{number}; the last one is {last_device}"
        )
    return devices[number]


def check_name(name: str) -> tuple[str, str]:
    """The type in `name`, which may be ``auto``, and the index or nothing; raises UsageProblem."""
    kind, colon, index = name.partition(":")
    if kind not in TYPES and name != "auto":
        aliases = {f"{word}{colon}{index}": types for word, types in _ALIASES.items()}
        raise invalid_choice("--device", name, ("auto", *TYPES), aliases=aliases)
    if colon and not index.isdecimal():
        raise UsageProblem(f"--device={name}: the index must be a number, e.g. {kind}:0")
    return kind, index


def _missing_support(kind: str) -> str:
    """Why torch has no device of the type, and what brings one."""
    import torch

    if kind != "cuda":
        return "supports no such device"
    if torch.version.cuda is None and torch.version.hip is None:
        return (
            "is built without CUDA and ROCm: for a GPU choose a build at "
            "https://pytorch.org/get-started/locally and install it over this one"
        )
    return "finds no such device (does nvidia-smi, or rocm-smi, show one?)"


def _available(kind: str) -> Sequence[Device]:
    """All devices of a type, by their indices; CUDA is not started."""
    if kind == "cpu":
        return (host(),)
    import torch

    if kind == "mps":
        if not torch.backends.mps.is_available():
            return ()
        memory = torch.mps.recommended_max_memory() / _GIB
        return (Device(torch_name="mps", model=cpu_model(), memory_gib=memory, device_count=1),)
    if kind == "cuda":
        visible = cuda_devices.visible()
    else:
        visible = cuda_devices.started(torch.xpu) if torch.xpu.is_available() else ()
    return [
        Device(
            torch_name=f"{kind}:{number}",
            model=device.name,
            memory_gib=device.memory_bytes / _GIB,
            free_gib=None if device.free_bytes is None else device.free_bytes / _GIB,
            device_count=len(visible),
        )
        for number, device in enumerate(visible)
    ]


def too_few_reason(device: Device, ranks: int, *, shares_device: bool) -> str:
    """Reason the host has too few devices for `ranks`; empty if it has enough.

    Each rank needs its own, unless all run on one (`shares_device`).
    """
    if shares_device:
        if device.type in {"cuda", "xpu"}:
            return ""
        return f"distributed.share_device applies to cuda and xpu only; remove it on {device.type}"
    if device.device_count is None or ranks <= device.device_count:
        return ""
    return (
        f"{ranks} ranks need one {device.type} device each, but this host has "
        f"{device.device_count}; --distributed.share_device=true runs them on one"
    )


def too_full_reason(device: Device, needed_gib: float, *, preset: str) -> str:
    """Reason that less than `needed_gib` of `device` are free; empty if enough is, or unknown."""
    if device.memory_gib is None or device.free_gib is None or device.free_gib >= needed_gib:
        return ""
    return (
        f"preset {preset} needs {needed_gib:g} GiB, but of the {device.memory_gib:.1f} GiB of "
        f"{device.torch_name} ({device.model}) {device.free_gib:.1f} are free: other processes use "
        "the rest (gpubench doctor lists those it can see); end them, choose another device, or "
        "state --preset=full or --preset=tiny"
    )


def synchronize(device: torch.device) -> None:
    """Wait for all work queued on `device`; a CPU has no queue."""
    if device.type != "cpu":
        import torch

        torch.accelerator.synchronize(device)


def timed_s(step: Callable[[], object], device: torch.device) -> float:
    """Seconds of one call of `step`, with `device` synchronized before and after."""
    synchronize(device)
    start = perf_counter()
    step()
    synchronize(device)
    return perf_counter() - start


def host() -> Device:
    """CPU of the host, without importing torch."""
    return Device(torch_name="cpu", model=cpu_model(), memory_gib=None)


def cpu_model() -> str:
    """Processor model name from the kernel or the platform module."""
    lines = text_of(CPU_FILE).splitlines()
    model_names = (
        line.partition(":")[2].strip() for line in lines if line.startswith("model name")
    )
    return next(model_names, platform.processor() or platform.machine())


def text_of(path: Path) -> str:
    """Contents of the file at `path`; empty if unreadable."""
    with suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace")
    return ""
