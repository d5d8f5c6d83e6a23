"""Peak tensor memory on a CPU, which torch does not track.

The resident size of the process will not do: it has interpreter and libraries in it, pages that an
allocator keeps and uses again, and whatever the first use of anything loads, so that what ran
before decides by how much it grows. Bytes that torch's allocator hands out are the same each time,
and what is counted on accelerators.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Final

from torch import Tensor, UntypedStorage
from torch._C._autograd import (
    _disable_profiler_legacy,
    _enable_profiler_legacy,
    _profiler_enabled,
)
from torch._C._profiler import ProfilerConfig, ProfilerState, _ExperimentalConfig
from torch.multiprocessing.reductions import StorageWeakRef

_ALLOCATION: Final = "memory_alloc"
"""The kind of a profiler's event that takes memory, or with a negative number gives it back."""


class TensorMemory:
    """Peak bytes of a benchmark's CPU tensors.

    It is made before the benchmark builds anything. :meth:`watch` then runs one call of the step,
    untimed: `peak_bytes` is what the tensors made until then hold, and the most that the call took
    from torch's allocator beyond that. Older tensors belong to the benchmark as far as its step
    works on them: :meth:`add_inputs` is given these. So it is the same who has built a cache, or a
    fixture of a wider scope. Memory that torch does not hand out is not in it: arrays of
    numpy, Python's own objects, and what libraries take for themselves.
    """

    def __init__(self) -> None:
        self.peak_bytes: int | None = None
        # While a reference is kept, weak as it is, no other storage comes to the same place.
        self._older = {
            storage._cdata: StorageWeakRef(storage) for storage in _storages(_all_tensors())
        }

    @property
    def facts(self) -> dict[str, float]:
        """Peak by fact name; empty for a step without tensors.

        What such a step takes, of numpy for example, nobody has seen: it is not zero.
        """
        return {"peak_memory_bytes": float(self.peak_bytes)} if self.peak_bytes else {}

    def watch(self, call: Callable[[], object]) -> None:
        """Run `call` once under observation; exceptions are left to the next call.

        Where a profiler runs already nothing is called, and no peak is known.
        """
        if _profiler_enabled():
            return
        gc.collect(1)  # what the calls before left in cycles
        storages = _storages_of(_all_tensors())
        bytes_in_use = sum(size for address, size in storages.items() if address not in self._older)
        config = ProfilerConfig(
            ProfilerState.CPU, False, True, False, False, False, _ExperimentalConfig()
        )
        _enable_profiler_legacy(config)
        try:
            with suppress(Exception):
                call()
        finally:
            threads = _disable_profiler_legacy()
        self.peak_bytes = bytes_in_use + _peak(threads)

    def add_inputs(self, inputs: Iterable[Tensor] | None) -> None:
        """Add older tensors among the step's `inputs`.

        None: nobody knows them. There may be older ones among them, so the peak is not known.
        """
        if inputs is None:
            self.peak_bytes = None
        elif self.peak_bytes is not None:
            # What was there before a benchmark is left out of garbage collections, and not listed.
            known_ids = set(map(id, _gc_tensors()))
            unknown_storages = _storages_of(
                tensor for tensor in inputs if id(tensor) not in known_ids
            )
            listed_older = {
                address: size
                for address, size in _storages_of(inputs).items()
                if address in self._older
            }
            self.peak_bytes += sum((unknown_storages | listed_older).values())


def _storages_of(tensors: Iterable[Tensor]) -> dict[int, int]:
    """Bytes of each CPU storage of `tensors`, by address."""
    return {storage._cdata: storage.nbytes() for storage in _storages(tensors)}


def _storages(tensors: Iterable[Tensor]) -> Iterator[UntypedStorage]:
    for tensor in tensors:
        with suppress(NotImplementedError, RuntimeError, ValueError):  # has no storage
            storage = tensor.untyped_storage()
            if storage.device.type == "cpu":
                yield storage


def _all_tensors() -> Iterator[Tensor]:
    """All tensors known to Python, and gradients; C++-only tensors are missing."""
    for tensor in _gc_tensors():
        yield tensor
        with suppress(NotImplementedError, RuntimeError):  # some kinds of tensors have neither
            if tensor.is_leaf and tensor.grad is not None:
                yield tensor.grad


def _gc_tensors() -> list[Tensor]:
    # Not isinstance, which asks the objects themselves: some warn of being asked anything.
    return [value for value in gc.get_objects() if issubclass(type(value), Tensor)]


def _peak(threads: list[list[Any]]) -> int:
    """Peak bytes above the start, over the events of all threads in order."""
    start = threads[0][0]
    events = [event for events in threads for event in events if event.kind() == _ALLOCATION]
    if sum(map(bool, threads)) > 1:
        events.sort(key=start.cpu_elapsed_us)
    current = peak = 0
    for event in events:
        current += event.cpu_memory_usage()
        peak = max(peak, current)
    return peak
