"""A model's state without wrapper and compiler, the return of freed memory, and device waits."""

from __future__ import annotations

import ctypes
import gc
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import torch
from torch.nn.parallel import DistributedDataParallel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor, nn


_COMPILED: Final = "_orig_mod."
"""What torch.compile puts before the names of the module inside."""


def model_state(module: nn.Module) -> dict[str, Tensor]:
    """The parameters and persistent buffers of `module`, which live on in it: nothing is copied."""
    return {_plain(name): value for name, value in _inner(module).state_dict().items()}


def load_model_state(module: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Copy `state`, as :func:`model_state` gave it, into the tensors of `module`."""
    inner = _inner(module)
    inner.load_state_dict({name: state[_plain(name)] for name in inner.state_dict()})


def _inner(module: nn.Module) -> nn.Module:
    return module.module if isinstance(module, DistributedDataParallel) else module


def _plain(name: str) -> str:
    return name.replace(_COMPILED, "")


def return_free_memory(device: torch.device) -> None:
    """Give what nobody holds any more back to the device, or on a CPU to the system.

    Else the peak of what runs next would count it: glibc keeps freed memory resident until
    malloc_trim(3), torch's allocator keeps it reserved.
    """
    gc.collect()
    if device.type != "cpu":
        torch.get_device_module(device).empty_cache()
    elif sys.platform == "linux":
        with suppress(OSError, AttributeError):  # another C library has no such function
            ctypes.CDLL(None).malloc_trim(0)


def wait_for(device: torch.device) -> None:
    """Return once everything queued on `device` is done; a CPU has no queue."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
