"""Checks of what driver, torch and NCCL have to do with each other."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import combinations
from typing import Any, Final

from gpubench_plugin.cli.doctor.machine import Fact, Gpu, Machine, Unknown
from gpubench_plugin.core.format import counted
from gpubench_plugin.environment import nvml

_BUILDS: Final = "https://pytorch.org/get-started/locally/"
_INSTALL: Final = f"install a build of torch for this driver: {_BUILDS}"
# NVML_P2P_CAPS_INDEX_READ (a tuple in pynvml 13.615), …_NVLINK and NVML_P2P_STATUS_OK.
_P2P_READ: Final = 0
_P2P_NVLINK: Final = 2
_P2P_OK: Final = 0


def driver(machine: Machine) -> Fact:
    """NVIDIA's driver, and whether torch was built for a CUDA that it runs."""
    if machine.library is None:
        if not (machine.root / "proc/driver/nvidia/version").exists():
            return "no NVIDIA driver", ""
        raise Unknown(
            "NVIDIA's driver is loaded, but its management library does not answer",
            "pip install 'pytest-gpubench[gpu]'",
        )
    cuda = nvml.driver_cuda(machine.library)
    version = nvml.answer(machine.library, "nvmlSystemGetDriverVersion")
    value = f"{version or '?'}, CUDA {f'{cuda // 1000}.{cuda % 1000 // 10}' if cuda else '?'}"
    if lost := [str(gpu.index) for gpu in machine.visible if gpu.handle is None]:
        return (
            f"{value}; no answer of GPU {', '.join(lost)}",
            "dmesg has the driver's reason (Xid): reset the GPU, or restart the machine",
        )
    try:
        torch = machine.torch
    except Unknown as error:
        return f"{value}; {error}", "make torch importable"
    value += f"; torch {torch['version']}"
    return _match(value, cuda, torch) if machine.gpus else (f"{value}; no GPU visible", "")


def _match(value: str, cuda: int | None, torch: Mapping[str, Any]) -> Fact:
    """Whether the driver runs what torch was built for."""
    if torch["cuda"] is None:
        return f"{value} was built without CUDA", _INSTALL
    if cuda is not None and nvml.is_old_driver(cuda, torch["cuda"]):
        return (
            f"{value} needs CUDA {torch['cuda'].partition('.')[0]}",
            f"update the driver, or install torch for CUDA {cuda // 1000}: {_BUILDS}",
        )
    if not torch["devices"]:
        problem = torch["problem"] or "it gives no reason"
        return f"{value} finds no device: {problem}", _INSTALL
    return f"{value} for CUDA {torch['cuda']}", ""


def architectures(machine: Machine) -> Fact:
    """Whether torch has kernels for every GPU.

    Code for a compute capability runs on later ones of the same major version; ``compute_…`` is
    compiled by the driver for any later one. That with an ``a`` runs on its own
    capability alone. See "Binary Compatibility" in
    https://docs.nvidia.com/cuda/cuda-programming-guide/.
    """
    if not machine.gpus:
        return "no GPU", ""
    known = machine.torch["architectures"]
    if not known:
        raise Unknown("torch does not tell what it was built for")
    facts = [_architecture(gpu, known) for gpu in machine.gpus]
    return next((fact for fact in facts if fact[1]), facts[0])


def _architecture(gpu: Gpu, known: list[str]) -> Fact:
    major, minor = gpu.require("GetCudaComputeCapability")
    value = f"{gpu.name} has sm_{major}{minor}; torch was built for {', '.join(known)}"
    built: dict[str, list[tuple[int, int]]] = {"sm": [], "compute": []}
    for text in known:
        if match := re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", text):
            version = int(match[2]), int(match[3])
            if match[4] != "a" or version == (major, minor):
                built[match[1]].append(version)
    if any(version[0] == major and version[1] <= minor for version in built["sm"]):
        return value, ""
    if any(version <= (major, minor) for version in built["compute"]):
        return f"{value}: kernels are compiled at their first call", _INSTALL
    return f"{value}: no kernel runs", _INSTALL


def nccl(machine: Machine) -> Fact:
    """The library by which ranks on several GPUs communicate."""
    version = machine.torch["nccl"]
    if version is not None:
        return str(version), ""
    if len(machine.gpus) < 2:
        return "none, and no GPUs that need it", ""
    return "torch was built without it: ranks communicate over gloo", _INSTALL


def gpu_links(machine: Machine) -> Fact:
    """Whether the GPUs read each other's memory, and by NVLink."""
    if len(machine.gpus) < 2:
        return "fewer than two GPUs", ""
    pairs = [*combinations(machine.gpus, 2)]
    reads, links = (
        [first.answer("GetP2PStatus", second.handle, capability) for first, second in pairs]
        for capability in (_P2P_READ, _P2P_NVLINK)
    )
    if None in reads:
        raise Unknown("the driver does not tell")
    value = (
        f"{counted(len(pairs), 'pair')}: {reads.count(_P2P_OK)} read each other's memory, "
        f"{links.count(_P2P_OK)} by NVLink"
    )
    cut = [pair for pair, status in zip(pairs, reads, strict=True) if status != _P2P_OK]
    if not cut:
        return value, ""
    first, second = cut[0]
    return (
        f"{value}; not {first.index} and {second.index}: data goes through main memory",
        "turn off ACS and the IOMMU (NCCL's troubleshooting page), or choose other GPUs",
    )
