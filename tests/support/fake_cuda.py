"""A host clock and a CUDA device on paper, so that the clocks are tested without a device."""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpubench_plugin.measure.clocks import TorchCuda

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpubench_plugin.measure.clocks import Step

_CYCLES_PER_NS = 2
_RECORD_NS = 10


@dataclass
class FakeHost:
    """A clock in nanoseconds that only goes on when it is told to."""

    time_ns: int = 0

    def now(self) -> int:
        """The reading."""
        return self.time_ns

    def spend(self, ns: int) -> None:
        """Let time pass."""
        self.time_ns += ns


@dataclass(eq=False)
class FakeEvent:
    """A mark that the device passes at `passed_ns`."""

    device: FakeCuda
    passed_ns: int | None = None

    def record(self) -> None:
        """Put the mark at the queue's end."""
        self.device.host.spend(_RECORD_NS)
        self.passed_ns = max(self.device.free_ns, self.device.host.time_ns)

    def query(self) -> bool:
        """Whether the device has come past it."""
        return self._passed() <= self.device.host.time_ns

    def elapsed_time(self, end_event: FakeEvent, /) -> float:
        """Milliseconds of device time until the later mark; an error while it is not passed."""
        if not end_event.query():
            message = "the device has not come past the event yet"
            raise RuntimeError(message)
        return (end_event._passed() - self._passed()) * 1e-6

    def _passed(self) -> int:
        if self.passed_ns is None:
            message = "the event was never recorded"
            raise RuntimeError(message)
        return self.passed_ns


@dataclass(eq=False)
class FakeCuda(TorchCuda):
    """A device with one queue: `launch` costs the host its enqueueing, the device its duration.

    A full queue holds the host up until its oldest entry is done, as the real one does.

    Args:
        host: the host whose clock the hand-over moves.
        depth: entries that the queue holds.
    """

    host: FakeHost
    depth: int = 1024
    free_ns: int = 0
    cache_overwritten: bool = False
    spins: int = 0
    waits: int = 0
    _queue: deque[int] = field(default_factory=deque)
    _reported: bool = False

    @contextmanager
    def current(self) -> Iterator[None]:
        """There is only this device."""
        yield

    def event(self) -> FakeEvent:
        """A new mark."""
        return FakeEvent(self)

    def launch(self, *, enqueue_ns: int, device_ns: int) -> None:
        """Hand work over."""
        self.host.spend(enqueue_ns)
        while self._queue and self._queue[0] <= self.host.time_ns:
            self._queue.popleft()
        if len(self._queue) >= self.depth:
            self.host.time_ns = max(self.host.time_ns, self._queue.popleft())
        self.free_ns = max(self.free_ns, self.host.time_ns) + device_ns
        self._queue.append(self.free_ns)

    def synchronize(self) -> None:
        """Wait until the queue is empty."""
        self.waits += 1
        self.host.time_ns = max(self.host.time_ns, self.free_ns)
        self._queue.clear()

    def item(self) -> None:
        """Wait as an operation like ``.item()`` does: torch would report it."""
        self._reported = True
        self.synchronize()

    def spin(self, cycles: int) -> None:
        """Queue idle turning."""
        self.spins += 1
        self.launch(enqueue_ns=_RECORD_NS, device_ns=cycles // _CYCLES_PER_NS)

    def overwrite_cache(self) -> None:
        """Queue a write over the cache; a kernel that cares looks at `cache_overwritten`."""
        self.cache_overwritten = True
        self.launch(enqueue_ns=1000, device_ns=20_000)

    def synchronizes(self, step: Step) -> bool:
        """Whether the step called :meth:`item`."""
        self._reported = False
        step()
        return self._reported
