"""What of the real CUDA device can be tested without one: which of torch's functions it calls."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gpubench_plugin.measure.clocks.cuda_device import TorchCuda

WAIT = "called a synchronizing CUDA operation (Triggered internally at CUDAFunctions.cpp:148.)"
ANNOUNCEMENT = "Synchronization debug mode is a prototype feature and does not yet detect all"


@pytest.fixture
def modes(monkeypatch: pytest.MonkeyPatch) -> list[str | int]:
    """The modes that were set; setting one warns, as torch does."""
    set_to: list[str | int] = []

    def set_mode(mode: str | int) -> None:
        set_to.append(mode)
        warnings.warn(ANNOUNCEMENT, stacklevel=1)

    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", set_mode)
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: 0)
    return set_to


@pytest.fixture
def device() -> TorchCuda:
    return TorchCuda(torch.device("cuda", 0))


@pytest.mark.parametrize("waits", [True, False])
def test_a_reported_wait_is_heard(device: TorchCuda, modes: list[str | int], waits: bool) -> None:
    """One of which torch warns; its announcement of the mode, which is put back, is none."""
    assert device.synchronizes(lambda: waits and warnings.warn(WAIT, stacklevel=1)) is waits
    assert modes == ["warn", 0]


class Calls:
    """A ``torch.cuda`` that notes what is called with what, and has one device of so much cache."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, cache_bytes: int) -> None:
        self.noted: list[tuple[object, ...]] = []
        for name in ("synchronize", "_sleep", "Event", "device"):
            monkeypatch.setattr(torch.cuda, name, self._noting(name))
        properties = SimpleNamespace(L2_cache_size=cache_bytes)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
        monkeypatch.setattr(torch, "empty", self._empty)

    def _noting(self, name: str) -> Callable[..., str]:
        def call(*args: object, **keys: object) -> str:
            self.noted.append((name, *args, *keys.items()))
            return name

        return call

    def _empty(self, size: int, *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        self.noted.append(("empty", size, dtype, device))
        return torch.full((size,), 7, dtype=dtype)


def test_the_device_asked_for_is_the_one_that_works(
    device: TorchCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events take times, waiting is for this device, which is made current; spins have cycles."""
    calls = Calls(monkeypatch, cache_bytes=1)
    assert device.event() == "Event"
    device.synchronize()
    device.spin(123)
    assert device.current() == "device"
    index = torch.device("cuda", 0)
    assert calls.noted == [
        ("Event", ("enable_timing", True)),
        ("synchronize", index),
        ("_sleep", 123),
        ("device", index),
    ]


def test_the_cache_is_overwritten_by_twice_its_size(
    device: TorchCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In memory that is allocated once, on the device, and whose bytes the clock can tell."""
    calls = Calls(monkeypatch, cache_bytes=1000)
    assert device.allocate_scratch() == 2000
    device.overwrite_cache()
    device.overwrite_cache()
    assert calls.noted == [("empty", 2000, torch.uint8, torch.device("cuda", 0))]
    assert device._scratch.count_nonzero() == 0


def stream(index: int, device: int = 0) -> Any:
    """A stream of a device."""
    return SimpleNamespace(cuda_stream=index, device=torch.device("cuda", device))


def test_streams_that_a_call_makes_current_are_noticed(
    device: TorchCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the device but the current one, once each; torch's function is put back."""
    current, first, second = stream(0), stream(1), stream(2)
    set_to: list[Any] = []
    monkeypatch.setattr(torch.cuda, "set_stream", set_to.append)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: current)
    before = torch.cuda.set_stream
    order = [first, current, second, current, first, stream(3, device=1), current]

    def call() -> None:
        for one in order:
            torch.cuda.set_stream(one)

    assert device.other_streams(call) == (first, second)
    assert set_to == order
    assert torch.cuda.set_stream is before


@pytest.mark.parametrize("noticing", ["other_streams", "synchronizes"])
def test_a_call_that_raises_leaves_torchs_function_and_mode(
    device: TorchCuda, modes: list[str | int], noticing: str
) -> None:
    """The exception goes on to the caller."""
    before = torch.cuda.set_stream

    def raising() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        getattr(device, noticing)(raising)
    assert torch.cuda.set_stream is before
    assert modes in ([], ["warn", 0])


def test_streams_are_held_behind_the_current_one(
    device: TorchCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each waits for one event, which was recorded before."""
    noted: list[tuple[str, object]] = []
    gate = SimpleNamespace(record=lambda: noted.append(("recorded", gate)))
    monkeypatch.setattr(torch.cuda, "Event", lambda: gate)
    streams: Any = [
        SimpleNamespace(wait_event=lambda event: noted.append(("waits", event))) for _ in range(2)
    ]
    device.hold(streams)
    assert noted == [("recorded", gate), ("waits", gate), ("waits", gate)]
