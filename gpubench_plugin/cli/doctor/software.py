"""Checks of what driver, torch and NCCL have to do with each other."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import combinations
from typing import Any, Final

from gpubench_plugin.cli.doctor.machine import Finding, Gpu, Machine, ok, unknown, warning
from gpubench_plugin.core.format import counted
from gpubench_plugin.environment import nvml
from gpubench_plugin.environment.child_process import ChildError

_BUILDS: Final = "https://pytorch.org/get-started/locally/"
_INSTALL: Final = f"install a build of torch for this driver: {_BUILDS}"
_P2P_READ: Final = 0
_P2P_NVLINK: Final = 2
"""NVML_P2P_CAPS_INDEX_READ (a tuple in pynvml 13.615) and …_NVLINK."""


def driver(machine: Machine) -> Finding:
    """NVIDIA's driver, and whether torch was built for a CUDA that it runs."""
    if machine.library is None:
        return _without_library(machine)
    driver_cuda = nvml.driver_cuda(machine.library)
    version = nvml.text(nvml.answer(machine.library, "nvmlSystemGetDriverVersion"))
    value = f"{version or '?'}, CUDA {_version(driver_cuda)}"
    if lost := [str(index) for index, gpu in machine.visible.items() if gpu is None]:
        return warning(
            f"{value}; no answer of GPU {', '.join(lost)}",
            "dmesg has the driver's reason (Xid): reset the GPU, or restart the machine",
        )
    try:
        torch = machine.torch
    except ChildError as error:
        return warning(f"{value}; torch cannot be examined: {error}", "make torch importable")
    value += f"; torch {torch['version']}"
    if not machine.gpus:
        return ok(f"{value}; no GPU visible")
    return _match(value, driver_cuda, torch)


def _without_library(machine: Machine) -> Finding:
    if not (machine.root / "proc/driver/nvidia/version").exists():
        return ok("no NVIDIA driver")
    return unknown(
        "NVIDIA's driver is loaded, but its management library does not answer",
        "pip install 'pytest-gpubench[gpu]'",
    )


def _match(value: str, driver_cuda: int | None, torch: Mapping[str, Any]) -> Finding:
    """Whether the driver runs what torch was built for."""
    if torch["cuda"] is None:
        return warning(f"{value} was built without CUDA", _INSTALL)
    if driver_cuda is not None and nvml.is_old_driver(driver_cuda, torch["cuda"]):
        return warning(
            f"{value} needs CUDA {torch['cuda'].partition('.')[0]}",
            f"update the driver, or install torch for CUDA {driver_cuda // 1000}: {_BUILDS}",
        )
    if not torch["devices"]:
        problem = torch["problem"] or "it gives no reason"
        return warning(f"{value} finds no device: {problem}", _INSTALL)
    return ok(f"{value} for CUDA {torch['cuda']}")


def _version(cuda: int | None) -> str:
    return "?" if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}"


def architectures(machine: Machine) -> Finding:
    """Whether torch has kernels for every GPU.

    Code for a compute capability runs on later ones of the same major version; ``compute_…`` is
    compiled by the driver for any later one. That with an ``a`` runs on its own
    capability alone. See "Binary Compatibility" in
    https://docs.nvidia.com/cuda/cuda-programming-guide/.
    """
    if not machine.gpus:
        return ok("no GPU")
    known = machine.torch["architectures"]
    if not known:
        return unknown("torch does not tell what it was built for")
    findings = [_architecture(gpu, known) for gpu in machine.gpus]
    return next((f for f in findings if f.outcome != "ok"), findings[0])


def _architecture(gpu: Gpu, known: list[str]) -> Finding:
    capability = gpu.answer("GetCudaComputeCapability")
    if capability is None:
        return unknown(f"the compute capability of GPU {gpu.index} is unknown")
    major, minor = capability
    name = f"{gpu.name} has sm_{major}{minor}"
    parsed = [
        match
        for text in known
        if (match := re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", text))
        and (match[4] != "a" or (int(match[2]), int(match[3])) == (major, minor))
    ]
    binaries = [(int(m[2]), int(m[3])) for m in parsed if m[1] == "sm"]
    sources = [(int(m[2]), int(m[3])) for m in parsed if m[1] == "compute"]
    built = f"torch was built for {', '.join(known)}"
    if any(b[0] == major and b[1] <= minor for b in binaries):
        return ok(f"{name}; {built}")
    if any(source <= (major, minor) for source in sources):
        return warning(f"{name}; {built}: kernels are compiled at their first call", _INSTALL)
    return warning(f"{name}; {built}: no kernel runs", _INSTALL)


def nccl(machine: Machine) -> Finding:
    """The library by which ranks on several GPUs communicate."""
    version = machine.torch["nccl"]
    if version is not None:
        return ok(str(version))
    if len(machine.gpus) < 2:
        return ok("none, and no GPUs that need it")
    return warning("torch was built without it: ranks communicate over gloo", _INSTALL)


def gpu_links(machine: Machine) -> Finding:
    """Whether the GPUs read each other's memory, and by NVLink."""
    if len(machine.gpus) < 2:
        return ok("fewer than two GPUs")
    pairs = [*combinations(machine.gpus, 2)]
    reads = [_can(pair, _P2P_READ) for pair in pairs]
    links = [_can(pair, _P2P_NVLINK) for pair in pairs]
    if None in reads:
        return unknown("the driver does not tell")
    value = (
        f"{counted(len(pairs), 'pair')}: {sum(map(bool, reads))} read each other's memory, "
        f"{sum(map(bool, links))} by NVLink"
    )
    if all(reads):
        return ok(value)
    cut = next(pair for pair, can in zip(pairs, reads, strict=True) if not can)
    return warning(
        f"{value}; not {cut[0].index} and {cut[1].index}: data goes through main memory",
        "turn off ACS and the IOMMU (NCCL's troubleshooting page), or choose other GPUs",
    )


def _can(pair: tuple[Gpu, Gpu], capability: int) -> bool | None:
    first, second = pair
    status: Any = nvml.answer(
        first.library, "nvmlDeviceGetP2PStatus", first.handle, second.handle, capability
    )
    return None if status is None else status == 0
