"""What a benchmark's tensors take on a CPU, where torch keeps no count of its memory.

The resident size of the process will not do: it has interpreter and libraries in it, pages that an
allocator keeps and uses again, and whatever the first use of anything loads. The same benchmark,
alone and after others, grew by 20.3 and 26.3 MiB (BERT), and by 9.5 and 4.5 MiB (ResNet-18). Bytes
that torch's allocator hands out are the same each time, and what is counted on accelerators.
"""

from __future__ import annotations

import gc
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from torch import Tensor
from torch._C._autograd import (
    _disable_profiler_legacy,
    _enable_profiler_legacy,
    _profiler_enabled,
)
from torch._C._profiler import ProfilerConfig, ProfilerState, _ExperimentalConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_ALLOCATION: Final = "memory_alloc"
"""The kind of a profiler's event that takes memory, or with a negative number gives it back."""


class TensorMemory:
    """The most bytes that CPU tensors made since now held at once.

    It is made before the benchmark builds anything. :meth:`watch` then runs one call of the step,
    untimed: `peak_bytes` is what the tensors made until then hold, and the most that the call took
    from torch's allocator beyond that. Memory that torch does not hand out is not in it: arrays of
    numpy, Python's own objects, and what libraries take for themselves.
    """

    def __init__(self) -> None:
        self.peak_bytes: int | None = None
        self._before = set(_storages())

    @property
    def facts(self) -> dict[str, float]:
        """The peak under the name of an observation's fact; none of a step without tensors.

        What such a step takes, of numpy for example, nobody has seen: it is not zero.
        """
        return {"peak_memory_bytes": float(self.peak_bytes)} if self.peak_bytes else {}

    def watch(self, call: Callable[[], object]) -> None:
        """Run `call` once, watched; an exception is left for the next call to raise.

        Where a profiler runs already nothing is called, and no peak is known.
        """
        if _profiler_enabled():
            return
        gc.collect(1)  # what the calls before left in cycles
        held = sum(size for key, size in _storages() if (key, size) not in self._before)
        config = ProfilerConfig(
            ProfilerState.CPU, False, True, False, False, False, _ExperimentalConfig()
        )
        _enable_profiler_legacy(config)
        try:
            with suppress(Exception):
                call()
        finally:
            threads = _disable_profiler_legacy()
        self.peak_bytes = held + _highest(threads)


def _storages() -> Iterator[tuple[int, int]]:
    """The place and the bytes of each storage that a tensor on the CPU has, each once.

    Tensors that Python does not know, of C++ alone, are missing but for gradients.
    """
    found: dict[int, int] = {}
    for tensor in gc.get_objects():
        if isinstance(tensor, Tensor):
            with suppress(NotImplementedError, RuntimeError, ValueError):  # has no storage
                _add(found, tensor)
    yield from found.items()


def _add(found: dict[int, int], tensor: Tensor) -> None:
    gradient = tensor.grad if tensor.is_leaf else None
    for one in (tensor, gradient):
        if one is not None and one.untyped_storage().device.type == "cpu":
            found[one.untyped_storage()._cdata] = one.untyped_storage().nbytes()


def _highest(threads: list[list[Any]]) -> int:
    """The most bytes beyond those at the start, over the events of all threads in their order."""
    start = threads[0][0]
    events = [event for events in threads for event in events if event.kind() == _ALLOCATION]
    if sum(map(bool, threads)) > 1:
        events.sort(key=partial(_elapsed_us, start))
    now = highest = 0
    for event in events:
        now += event.cpu_memory_usage()
        highest = max(highest, now)
    return highest


def _elapsed_us(start: Any, event: Any) -> float:
    elapsed: float = start.cpu_elapsed_us(event)
    return elapsed
