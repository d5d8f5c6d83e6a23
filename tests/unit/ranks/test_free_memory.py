"""The memory a rank may still take."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import torch

from gpubench_plugin.training.timed_collective import free_bytes

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

CPU = torch.device("cpu")


def test_ranks_of_a_host_share_what_is_available(tmp_path: Path) -> None:
    """Half of 8 MiB for each of two ranks; where nothing is said, nothing is known."""
    meminfo = tmp_path / "meminfo"
    assert free_bytes(CPU, local_ranks=2, meminfo=meminfo) is None
    meminfo.write_text("MemTotal:  16384 kB\nMemFree:  1024 kB\nMemAvailable:  8192 kB\n")
    assert free_bytes(CPU, local_ranks=2, meminfo=meminfo) == 4 * 2**20


def test_an_accelerator_says_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank has its device to itself."""
    fake = SimpleNamespace(mem_get_info=lambda device: (2**30, 2**34))
    monkeypatch.setattr(torch, "get_device_module", lambda device: fake)
    assert free_bytes(torch.device("cuda", 1), local_ranks=8) == 2**30
