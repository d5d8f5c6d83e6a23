"""NVIDIA's management library, which answers without a CUDA context.

``pynvml`` comes with the optional package ``nvidia-ml-py``. Functions differ between its versions,
drivers and GPUs: what one of them lacks is None here, and the rest is still known.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

GRAPHICS_CLOCK: Final = 0
SM_CLOCK: Final = 1
MEMORY_CLOCK: Final = 2
"""``NVML_CLOCK_GRAPHICS``, ``NVML_CLOCK_SM`` and ``NVML_CLOCK_MEM``."""


@contextmanager
def opened() -> Iterator[Any]:
    """The module ``pynvml``, initialised until exit; None without the package or a driver."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the package pynvml warns that it is deprecated
            nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception:  # see answer()
        nvml = None
    try:
        yield nvml
    finally:
        if nvml is not None:
            with suppress(Exception):
                nvml.nvmlShutdown()


def answer(nvml: Any, function: str, *arguments: object, **options: object) -> Any:
    """Result of `function`; None if there is no `nvml` or no handle, or driver or GPU lack it.

    Versions of ``pynvml`` that do not fit a driver fail in ways of their own, such as TypeError or
    UnicodeDecodeError: no fact is worth a measurement.
    """
    with suppress(Exception):
        return None if None in arguments else getattr(nvml, function)(*arguments, **options)
    return None


def handles(nvml: Any) -> list[Any] | None:
    """A handle per GPU in the order of the PCI bus; None for one that does not answer.

    None instead of a list if the number of GPUs is unknown.
    """
    count = answer(nvml, "nvmlDeviceGetCount")
    if not isinstance(count, int):
        return None
    return [answer(nvml, "nvmlDeviceGetHandleByIndex", index) for index in range(count)]


def mig_modes(nvml: Any, handle: Any) -> tuple[bool, bool] | None:
    """Whether the GPU of `handle` is sliced now, and after a reset; None if it cannot be."""
    modes = answer(nvml, "nvmlDeviceGetMigMode", handle)
    return None if modes is None else (bool(modes[0]), bool(modes[1]))


def driver_cuda(nvml: Any) -> int | None:
    """Version of CUDA of the driver, 13000 for 13.0; None if unknown."""
    version = answer(nvml, "nvmlSystemGetCudaDriverVersion_v2")
    return None if version is None else int(version)


def is_old_driver(driver_cuda: int, torch_cuda: str) -> bool:
    """Whether a driver of that CUDA version runs no programs of CUDA `torch_cuda`, such as 13.0.

    It needs the same major version, or a later one. Source:
    https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
    """
    return driver_cuda // 1000 < int(torch_cuda.partition(".")[0])
