"""Memory that was freed, given back."""

from __future__ import annotations

import ctypes
import gc
import sys
from contextlib import suppress

import torch


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
