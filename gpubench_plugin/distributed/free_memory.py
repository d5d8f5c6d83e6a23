"""The memory a rank may still take."""

from __future__ import annotations

from pathlib import Path

import torch

_MEMINFO = Path("/proc/meminfo")


def free_bytes(
    device: torch.device, *, local_ranks: int, shared: bool = False, meminfo: Path = _MEMINFO
) -> int | None:
    """The bytes free on `device`; on a CPU this rank's share of what Linux calls available.

    Of a device that all ranks of the host have `shared` it is this rank's share, too. None where
    the system does not say. `meminfo` is in the format of proc_meminfo(5).
    """
    if device.type != "cpu":
        free = int(torch.get_device_module(device).mem_get_info(device)[0])
        return free // local_ranks if shared else free
    if not meminfo.exists():
        return None
    lines = meminfo.read_text(encoding="ascii").splitlines()
    kibibytes = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    return kibibytes * 1024 // local_ranks
