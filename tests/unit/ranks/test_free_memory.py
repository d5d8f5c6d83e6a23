"""The memory a rank may still take."""

from __future__ import annotations

from types import SimpleNamespace

import psutil
import pytest
import torch

from gpubench_plugin.training.timed_collective import free_bytes


@pytest.mark.parametrize(
    ("device", "shared", "expected"),
    [("cpu", False, 2**20), ("cuda:1", False, 2**30), ("cuda:1", True, 2**29)],
)
def test_ranks_share_a_host_or_one_device(
    device: str, shared: bool, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of what is available for each of two ranks, unless a rank has its device to itself."""
    fake = SimpleNamespace(mem_get_info=lambda device: (2**30, 2**34))
    monkeypatch.setattr(torch, "get_device_module", lambda device: fake)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=2**21))
    assert free_bytes(torch.device(device), local_ranks=2, shared=shared) == expected
