"""The accelerator of this machine, and a timer that synchronizes with it.

Nothing here initializes the accelerator: a context takes memory and half a second, and a process
with one can no longer fork. Nor does it start CUDA's driver; see ``environment/cuda_devices.py``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.environment import cuda_devices

KINDS: Final = ("cuda", "xpu")
"""Accelerators with ``torch.<kind>.is_initialized``."""


class Accelerator:
    """The devices of one `kind` (``cuda``, ``xpu``, ``mps``) as known to torch."""

    def __init__(self, torch: Any, kind: str) -> None:
        self.kind = kind
        self._module = getattr(torch, kind)

    @classmethod
    def find(cls, modules: Mapping[str, Any]) -> Accelerator | None:
        """Find the accelerator; None without one, or if torch is not imported."""
        torch = modules.get("torch")
        if torch is None:
            return None
        with warnings.catch_warnings():  # for example of a driver too old: then there is none
            warnings.simplefilter("ignore")
            if _has_cuda(torch.cuda):
                return cls(torch, "cuda")
            if torch.xpu.device_count():
                return cls(torch, "xpu")
            return cls(torch, "mps") if torch.backends.mps.is_available() else None

    @property
    def is_started(self) -> bool:
        """Whether this process has initialized it, and so may have work on it."""
        if self.kind == "mps":
            return bool(self._module.current_allocated_memory())
        return bool(self._module.is_initialized())

    def synchronizers(self) -> tuple[Callable[[], object], ...]:
        """Functions that synchronize the current device and those with memory; once started."""
        if self.kind == "mps" or self._module.device_count() == 1:
            return (self._module.synchronize,)
        current_index = self._module.current_device()
        return tuple(
            partial(self._module.synchronize, index)
            for index in range(self._module.device_count())
            if index == current_index or self._module.memory_allocated(index)
        )

    @property
    def name(self) -> str:
        """Model of the current device; call only once started."""
        return str(self._module.get_device_name()) if self.kind in KINDS else self.kind

    def reset_peak(self) -> None:
        """Reset the memory peak."""
        if self.is_started and self.kind in KINDS:
            self._module.reset_peak_memory_stats()

    def peak_bytes(self) -> int | None:
        """Peak memory allocated by torch on the current device; None if unsupported."""
        if not self.is_started or self.kind not in KINDS:
            return None
        return int(self._module.max_memory_allocated()) or None


def _has_cuda(cuda: Any) -> bool:
    """Whether torch's module `cuda` has a device."""
    if cuda.is_initialized():
        return bool(cuda.device_count())
    with suppress(UsageProblem):
        return bool(cuda_devices.visible())
    return False


_DEFAULT_TIMER: Final = "perf_counter"


class SynchronisedTimer:
    """Reads `timer` after synchronizing with `accelerator`.

    Launching work on an accelerator takes microseconds, whatever the work: without synchronizing,
    only the launch is timed. Until torch starts the accelerator, each reading checks for that.
    """

    def __init__(self, timer: Callable[[], float], accelerator: Accelerator) -> None:
        name = getattr(timer, "__name__", str(timer))
        default_name = f"{accelerator.kind}_synchronised"
        self.__name__ = default_name if name == _DEFAULT_TIMER else f"{default_name}_{name}"
        self._timer = timer
        self._accelerator = accelerator
        self._waits: tuple[Callable[[], object], ...] = (self._check_started,)

    def __call__(self) -> float:
        """Synchronized reading in seconds."""
        for wait in self._waits:
            wait()
        return self._timer()

    def refresh(self) -> None:
        """Determine the devices in use, once per benchmark since it is slow."""
        if self._accelerator.is_started:
            self._waits = self._accelerator.synchronizers()

    def _check_started(self) -> None:
        if self._accelerator.is_started:
            self.refresh()
            for wait in self._waits:
                wait()
