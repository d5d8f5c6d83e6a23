"""Memory that grows with every timed call."""

from __future__ import annotations

from mmap import ACCESS_READ, MADV_DONTNEED, MAP_ANONYMOUS, MAP_PRIVATE, mmap
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
import torch

from gpubench_plugin.core.quality_flags import GROWING_MEMORY
from gpubench_plugin.measure.probes.memory import MemoryGrowth, grows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MIB = 2**20
BLOCKS = 40


def held(of_block: Callable[[int], float]) -> list[int]:
    """Bytes after each block."""
    return [int(of_block(n)) for n in range(BLOCKS)]


@pytest.mark.parametrize(
    ("of_block", "is_leak"),
    [
        pytest.param(lambda n: n * MIB, True, id="plainly"),
        pytest.param(lambda n: 300 * MIB + n * MIB // 4, True, id="slowly"),
        pytest.param(lambda n: n * MIB + (n % 3) * MIB // 2, True, id="with noise"),
        pytest.param(lambda n: n // 4 * 4 * MIB, True, id="in leaps"),
        pytest.param(lambda n: 300 * MIB, False, id="constant"),
        pytest.param(lambda n: 300 * MIB + n % 7 * MIB, False, id="noise"),
        pytest.param(lambda n: min(n, 8) * 4 * MIB, False, id="a cache"),
        pytest.param(lambda n: (n > 30) * 64 * MIB, False, id="one leap"),
        pytest.param(lambda n: -n * MIB, False, id="falling"),
        pytest.param(lambda n: n * 8 * 1024, False, id="little"),
        pytest.param(lambda n: n * 50 * MIB / (1 + n), False, id="levelling off"),
    ],
)
def test_growth_through_all_calls_is_a_leak(
    of_block: Callable[[int], float], is_leak: bool
) -> None:
    """However much there was before; not what ends, or begins late, or is little."""
    assert grows(held(of_block), [10] * BLOCKS) is is_leak


def test_what_recording_takes_is_no_leak() -> None:
    """Sixteen bytes for each of many durations are our own."""
    assert not grows(held(lambda n: n * 100_000 * 16), [100_000] * BLOCKS)


def test_a_list_that_grows_by_a_number_with_each_call_is_found() -> None:
    """Of calls that are timed by the hundred, recording takes next to nothing."""
    calls = [40_000] * BLOCKS
    assert grows(held(lambda n: n * 40_000 * 40), calls, calls_per_duration=400)
    assert not grows(held(lambda n: n * 40_000 * 40), calls, calls_per_duration=1)


@pytest.mark.parametrize("blocks", range(12))
def test_few_blocks_are_enough(blocks: int) -> None:
    """A step of seconds has few; with fewer than parts, what fills a cache looks the same."""
    assert grows([n * 2 * MIB for n in range(blocks)], [3] * blocks) is (blocks >= 4)
    assert not grows([min(n, 1) * 64 * MIB for n in range(blocks)], [3] * blocks)


def taken() -> mmap:
    """A mebibyte that is new to the process: what malloc returns may have been there before."""
    memory = mmap(-1, MIB, flags=MAP_PRIVATE | MAP_ANONYMOUS)
    memory.write(bytes(MIB))
    return memory


def test_memory_that_stays_is_found() -> None:
    """The memory of this process, read between blocks, shows what a step leaves behind."""
    growth, kept = MemoryGrowth(torch.device("cpu")), []
    growth.begin()
    for _ in range(BLOCKS):
        kept.append(taken())
        growth.block_ended()
    assert growth.flags([1] * BLOCKS, 1) == (GROWING_MEMORY,)


def test_pages_of_files_do_not_count(tmp_path: Path) -> None:
    """A file that is read does not look like a leak, and taking back its pages hides none."""
    file = tmp_path / "file"
    file.write_bytes(bytes(BLOCKS * MIB))
    with file.open("rb") as opened, mmap(opened.fileno(), 0, access=ACCESS_READ) as mapped:
        growth = MemoryGrowth(torch.device("cpu"))
        growth.begin()
        for block in range(BLOCKS):
            mapped[block * MIB : (block + 1) * MIB].count(1)
            growth.block_ended()
        assert growth.flags([1] * BLOCKS, 1) == ()
        growth, kept = MemoryGrowth(torch.device("cpu")), []
        growth.begin()
        for block in range(BLOCKS):
            kept.append(taken())
            mapped.madvise(MADV_DONTNEED, block * MIB, MIB)
            growth.block_ended()
        assert growth.flags([1] * BLOCKS, 1) == (GROWING_MEMORY,)


def test_what_a_collection_frees_is_no_leak() -> None:
    """Cycles pile up because the collector rests while calls are timed."""
    growth = MemoryGrowth(torch.device("cpu"))
    for _ in range(BLOCKS):
        cycle: list[object] = [taken()]
        cycle.append(cycle)
        growth.block_ended()
    del cycle
    assert growth.flags([1] * BLOCKS, 1) == ()


def test_an_accelerator_is_asked_for_what_is_allocated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its allocator's count, which holds nothing but tensors, is read for the device measured."""
    counts = iter(range(0, 1000 * MIB, MIB))
    asked = []

    class Module:
        @staticmethod
        def memory_allocated(device: torch.device) -> int:
            asked.append(device)
            return next(counts)

        @staticmethod
        def empty_cache() -> None:
            """Nothing to return."""

    monkeypatch.setattr(torch, "get_device_module", lambda device: Module)
    device = torch.device("cuda", 1)
    growth = MemoryGrowth(device)
    for _ in range(BLOCKS):
        growth.block_ended()
    assert growth.flags([1] * BLOCKS, 1) == (GROWING_MEMORY,)
    assert set(asked) == {device}


@pytest.mark.parametrize(("garbage_mib", "flags"), [(40, ("uncollected",)), (3, ())])
def test_garbage_on_an_accelerator_is_flagged(
    monkeypatch: pytest.MonkeyPatch, garbage_mib: int, flags: tuple[str, ...]
) -> None:
    """A collection that frees much of the allocated memory says that the peak has garbage in it."""
    freed: list[None] = []
    kept = 100 * MIB
    module = SimpleNamespace(
        memory_allocated=lambda _: kept + (0 if freed else garbage_mib * MIB),
        empty_cache=lambda: freed.append(None),
    )
    monkeypatch.setattr(torch, "get_device_module", lambda _: module)
    growth = MemoryGrowth(torch.device("cuda", 0))
    growth.block_ended()
    assert growth.flags([1], 1) == flags
