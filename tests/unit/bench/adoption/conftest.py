"""A torch on paper: a CUDA device that works behind a host whose clock only goes on when told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gpubench_plugin.environment import cuda_devices
from tests.support.fake_cuda import FakeCuda, FakeHost


class Torch:
    """The part of torch that adoption looks at, with `count` devices of one kind."""

    visible = 0

    def __init__(self, kind: str = "cuda", count: int = 1, *, started: bool = True) -> None:
        self.host = FakeHost()
        Torch.visible = count if kind == "cuda" else 0
        self.devices = [FakeCuda(self.host) for _ in range(count)]
        self.started = started
        self.current = 0
        self.allocated = [0] * count
        self.peak = 0
        self.resets = 0
        nothing = SimpleNamespace(device_count=lambda: 0, is_initialized=lambda: False)
        self.cuda: Any = self._module() if kind == "cuda" else nothing
        self.xpu: Any = self._module() if kind == "xpu" else nothing
        self.mps = SimpleNamespace(
            current_allocated_memory=lambda: self.allocated[0], synchronize=self._synchronize
        )
        self.backends = SimpleNamespace(mps=SimpleNamespace(is_available=lambda: kind == "mps"))

    def _module(self) -> SimpleNamespace:
        return SimpleNamespace(
            device_count=lambda: len(self.devices),
            is_initialized=lambda: self.started,
            current_device=lambda: self.current,
            memory_allocated=self.allocated.__getitem__,
            synchronize=self._synchronize,
            get_device_name=lambda: "H200 on paper",
            reset_peak_memory_stats=self._reset,
            max_memory_allocated=lambda: self.peak,
        )

    def _synchronize(self, index: int | None = None) -> None:
        assert self.started, "waiting would have started the device"
        self.devices[self.current if index is None else index].synchronize()

    def _reset(self) -> None:
        self.resets += 1
        self.peak = 0

    def perf_counter(self) -> float:
        """The host's clock in seconds; reading it takes no time."""
        return self.host.time_ns * 1e-9


@pytest.fixture(autouse=True)
def _cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """The devices of CUDA are those of the torch that was made last."""
    monkeypatch.setattr(cuda_devices, "visible", lambda: (None,) * Torch.visible)


@pytest.fixture
def torch() -> Torch:
    """With one CUDA device, which has been started."""
    return Torch()
