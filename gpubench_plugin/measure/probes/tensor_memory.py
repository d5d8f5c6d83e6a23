"""Peak memory of a benchmark's CPU tensors, which torch does not count."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Final

from torch import Tensor, UntypedStorage
from torch._C._autograd import _disable_profiler_legacy, _enable_profiler_legacy, _profiler_enabled
from torch._C._profiler import ProfilerConfig, ProfilerState, _ExperimentalConfig
from torch.multiprocessing.reductions import StorageWeakRef

_ALLOCATION: Final = "memory_alloc"
"""Kind of profiler events that allocate memory, or with a negative number free it."""


class TensorMemory:
    """Peak bytes of a benchmark's CPU tensors; created before the benchmark builds anything.

    torch does not count them. The resident size of the process depends on the interpreter, on
    libraries loaded at first use and on pages that allocators keep, hence on what ran before. Bytes
    allocated by torch are reproducible, and are what accelerators count.

    :meth:`watch` runs one untimed call of the step: `peak_bytes` is the size of the tensors created
    until then, plus the peak that the call allocates. :meth:`add_inputs` adds older tensors that
    the step uses, such as caches and fixtures of a wider scope. Memory not allocated by torch is
    left out: numpy arrays, Python objects, and internal memory of libraries. What the call frees of
    older memory but for a tensor of the benchmark's own (a graph's, a sparse or an older tensor's,
    by resizing) may be missing in the peak, if an earlier benchmark had allocated in its place.
    """

    def __init__(self) -> None:
        self.peak_bytes: int | None = None
        # A weak reference keeps the address from being reused.
        self._older = {
            storage._cdata: StorageWeakRef(storage) for storage in _storages(_all_tensors())
        }

    @property
    def facts(self) -> dict[str, float]:
        """Peak by fact name; empty for a step without tensors, whose memory is unknown."""
        return {"peak_memory_bytes": float(self.peak_bytes)} if self.peak_bytes else {}

    def watch(self, call: Callable[[], object]) -> None:
        """Run `call` once under the profiler; not under another one.

        What it raises is ignored, the peak unknown then.
        """
        if _profiler_enabled():
            return
        gc.collect()  # cycles left by earlier calls, of any generation: which one is chance
        # Held, so that the call frees none of them: torch reports no free of a block older than the
        # profiler, unless an earlier profiler saw another block at its address.
        held = list(_storages(_all_tensors()))
        sizes = {storage._cdata: storage.nbytes() for storage in held}
        bytes_in_use = sum(size for address, size in sizes.items() if address not in self._older)
        config = ProfilerConfig(
            ProfilerState.CPU, False, True, False, False, False, _ExperimentalConfig()
        )
        _enable_profiler_legacy(config)
        is_complete = False
        try:
            with suppress(Exception):
                call()
                is_complete = True
        finally:
            threads = _disable_profiler_legacy()
            del held
        self.peak_bytes = bytes_in_use + _peak(threads) if is_complete else None

    def add_inputs(self, inputs: Iterable[Tensor] | None) -> None:
        """Add older tensors among the step's `inputs`; if these are None, the peak is unknown."""
        if inputs is None:
            self.peak_bytes = None
        elif self.peak_bytes is not None:
            # The collector does not list objects older than the benchmark, which are frozen.
            listed_ids = set(map(id, _gc_tensors()))
            unlisted = _storages_of(tensor for tensor in inputs if id(tensor) not in listed_ids)
            sizes = _storages_of(inputs)
            older = {address: sizes[address] for address in sizes.keys() & self._older.keys()}
            self.peak_bytes += sum((unlisted | older).values())


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
    # Not isinstance, which reads __class__ of every object: some warn of any access.
    return [value for value in gc.get_objects() if issubclass(type(value), Tensor)]


def _peak(threads: list[list[Any]]) -> int:
    """Peak bytes above the start, over the events of all threads in order."""
    start = threads[0][0]
    events = [event for events in threads for event in events if event.kind() == _ALLOCATION]
    if sum(map(bool, threads)) > 1:
        events.sort(key=start.cpu_elapsed_us)
    current = peak = 0
    for event in events:
        # Only a free that is not of this call can lead below the start; see `watch`.
        current = max(0, current + event.cpu_memory_usage())
        peak = max(peak, current)
    return peak
