"""The peaks of memory in use while a benchmark ran, of the device and of the process."""

from __future__ import annotations

import types
from pathlib import Path

import pytest
import torch

from gpubench_plugin.core.quality_flags import SINCE_START
from gpubench_plugin.measure.probes import memory as memory_probe
from gpubench_plugin.measure.probes.memory import PeakMemory

CPU = torch.device("cpu")
MIB = 1024**2


def resettable() -> bool:
    """Whether this system lets a process reset its peak."""
    with PeakMemory(CPU) as memory:
        pass
    return not memory.flags


def peak_of(size: int) -> float:
    """The peak while so many bytes are in use for a moment."""
    with PeakMemory(CPU) as memory:
        block = bytearray(b"x") * size
        del block
    return memory.facts["process_peak_memory_bytes"]


@pytest.mark.skipif(not resettable(), reason="this system does not let a process reset its peak")
def test_memory_in_use_for_a_moment_is_seen() -> None:
    """What was in use raises the peak, and is forgotten at the next entry."""
    large = peak_of(256 * MIB)
    small = peak_of(1)
    assert 200 * MIB < large - small < 300 * MIB


@pytest.fixture
def status(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """What the system states of this process, beside the file that resets its peak."""
    monkeypatch.setattr(memory_probe, "_CLEAR", tmp_path / "clear_refs")
    monkeypatch.setattr(memory_probe, "_STATUS", tmp_path / "status")
    return tmp_path / "status"


@pytest.mark.parametrize("text", [None, "Name:\tpython\n"])
def test_a_peak_that_cannot_be_reset_is_flagged(status: Path, text: str | None) -> None:
    """Without a status, or with one that does not state it: it is the peak since the start."""
    if text is not None:
        status.write_text(text, encoding="ascii")
    with PeakMemory(CPU) as memory:
        pass
    assert memory.flags == (SINCE_START,)
    assert memory.facts["process_peak_memory_bytes"] > 10 * MIB


def test_the_status_is_in_kibibytes(status: Path) -> None:
    """VmHWM is read as Linux writes it, at the exit."""
    status.write_text("VmHWM:\t  1 kB\n", encoding="ascii")
    with PeakMemory(CPU) as memory:
        status.write_text("VmPeak:\t  9 kB\nVmHWM:\t     2048 kB\nX: 1 kB", encoding="ascii")
    assert (memory.facts, memory.flags) == ({"process_peak_memory_bytes": 2.0 * MIB}, ())
    assert status.with_name("clear_refs").read_text(encoding="ascii") == "5"


def test_what_is_left_out_is_in_no_peak(status: Path) -> None:
    """The one before and the one after it are; between them the system's is reset."""
    status.write_text("VmHWM: 1024 kB", encoding="ascii")
    with PeakMemory(CPU) as memory:
        status.write_text("VmHWM: 3072 kB", encoding="ascii")
        with memory.left_out():
            status.write_text("VmHWM: 9216 kB", encoding="ascii")
            status.with_name("clear_refs").unlink()
        assert status.with_name("clear_refs").read_text(encoding="ascii") == "5"
        status.write_text("VmHWM: 2048 kB", encoding="ascii")
    assert memory.facts == {"process_peak_memory_bytes": 3.0 * MIB}


def test_an_accelerator_has_its_own_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    """The counters are reset at the entry and read at the exit, on the device asked for."""
    device = torch.device("cuda", 1)
    asked: list[tuple[str, torch.device]] = []

    def counter(name: str, value: int) -> object:
        return lambda device: asked.append((name, device)) or value

    module = types.SimpleNamespace(
        reset_peak_memory_stats=counter("reset", 0),
        max_memory_allocated=counter("allocated", 3 * MIB),
    )
    monkeypatch.setattr(torch, "get_device_module", lambda _: module)
    with PeakMemory(device) as memory:
        assert asked == [("reset", device)]
    assert memory.facts == {"peak_memory_bytes": 3.0 * MIB}
    assert asked[1:] == [("allocated", device)]


def test_what_was_allocated_for_the_clock_is_no_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes of the device that are excluded do not count."""
    module = types.SimpleNamespace(
        reset_peak_memory_stats=lambda _: None,
        max_memory_allocated=lambda _: 103 * MIB,
    )
    monkeypatch.setattr(torch, "get_device_module", lambda _: module)
    with PeakMemory(torch.device("cuda"), 100 * MIB) as memory:
        pass
    assert memory.facts == {"peak_memory_bytes": 3 * MIB}


def test_a_device_without_counters_has_no_peak() -> None:
    """On MPS, which has none, nothing is made up."""
    with PeakMemory(torch.device("mps")) as memory:
        pass
    assert memory.facts == {}
