"""A machine's GPUs as NVML would know them, and a torch that was built for them, on paper."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pynvml
import torch

from gpubench_plugin.environment import cuda_devices

if TYPE_CHECKING:
    import pytest

GIB = 2**30


class NoAnswerError(Exception):
    """NVML's error."""


@dataclass
class FakeGpu:
    """What functions of NVML answer about one GPU; a callable gets their further arguments."""

    name: str = "NVIDIA H200"
    uuid: str = "GPU-00000000-0000"
    total: int = 140 * GIB
    reserved: int = GIB
    used: int = 0
    answers: dict[str, Any] = field(default_factory=dict)

    def answer(self, function: str, *arguments: object, **options: object) -> Any:
        """The answer; an error where it has none."""
        known: Mapping[str, Any] = {
            "nvmlDeviceGetName": self.name,
            "nvmlDeviceGetUUID": self.uuid,
            "nvmlDeviceGetMemoryInfo": self._memory,
            **self.answers,
        }
        if known.get(function) is None:
            raise NoAnswerError(f"{function}: not supported")
        value = known[function]
        return value(*arguments, **options) if callable(value) else value

    def _memory(self, version: int | None = None) -> SimpleNamespace:
        free = self.total - self.reserved - self.used
        memory = SimpleNamespace(total=self.total, free=free)
        if version is not None:
            memory.reserved = self.reserved
        return memory


class FakeNvml(ModuleType):
    """The module ``pynvml`` of a machine with these GPUs; `system` answers for all of it.

    It has the functions of the real one, and no others.
    """

    NVMLError = NoAnswerError
    NVML_CLOCK_GRAPHICS = 0
    NVML_CLOCK_MEM = 2
    nvmlMemory_v2 = 2  # noqa: N815 # NVML's name

    def __init__(self, *gpus: FakeGpu, **system: Any):
        super().__init__("pynvml")
        self.gpus = gpus
        self.system = {
            "nvmlInit": "",
            "nvmlShutdown": "",
            "nvmlDeviceGetCount": len(gpus),
            "nvmlSystemGetDriverVersion": "580.65.06",
            "nvmlSystemGetCudaDriverVersion_v2": 13000,
            **system,
        }

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not name.startswith("nvml") or not hasattr(pynvml, name):
            raise AttributeError(name)
        return lambda *arguments, **options: self._answer(name, *arguments, **options)

    def _answer(self, name: str, *arguments: Any, **options: Any) -> Any:
        if name == "nvmlDeviceGetHandleByIndex":
            return self.gpus[arguments[0]]
        if name == "nvmlDeviceGetHandleByUUID":
            found = [gpu for gpu in self.gpus if gpu.uuid == arguments[0]]
            if not found:
                raise NoAnswerError("not found")
            return found[0]
        if arguments and isinstance(arguments[0], FakeGpu):
            return arguments[0].answer(name, *arguments[1:], **options)
        if self.system.get(name) is None:
            raise NoAnswerError(f"{name}: not supported")
        return self.system[name]


class CudaStartedError(Exception):
    """Something in this process started CUDA."""


def install(monkeypatch: pytest.MonkeyPatch, nvml: ModuleType | None) -> None:
    """Let this process have a torch for CUDA 13, these GPUs, and a CUDA that must not start."""

    def start(*_: object, **__: object) -> None:
        raise CudaStartedError

    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setattr(cuda_devices, "_has_nvidia_driver", lambda: True)
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    for function in (
        *("_lazy_init", "is_available", "device_count", "get_device_properties"),
        "reset_peak_memory_stats",
    ):
        monkeypatch.setattr(torch.cuda, function, start)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    cuda_devices._from_child.cache_clear()
