"""A host clock and a CUDA device on paper, so that the clocks are tested without a device."""

from __future__ import annotations

from collections import defaultdict, deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gpubench_plugin.measure.clocks.cuda_device import TorchCuda

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gpubench_plugin.measure.clocks.base import Step

CURRENT = "current"
SIDE = "side"

_CYCLES_PER_NS = 2.0
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

    def wait_until(self, ns: int) -> None:
        """Let time pass up to a reading, if it is still to come."""
        self.time_ns = max(self.time_ns, ns)


@dataclass(eq=False)
class FakeEvent:
    """A mark that the device's current stream passes at `passed_ns`."""

    device: FakeCuda
    passed_ns: int | None = None

    def record(self) -> None:
        """Put the mark at the queue's end."""
        self.device.launch(enqueue_ns=_RECORD_NS, device_ns=self.device.record_ns)
        self.passed_ns = self.device.free_ns - self.device.record_ns

    def query(self) -> bool:
        """Whether the device has come past it."""
        return self._passed() <= self.device.host.time_ns

    def synchronize(self) -> None:
        """Wait until the device has come past it."""
        self.device.host.wait_until(self._passed())

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
    """A device of streams: `launch` costs the host its enqueueing, a stream its duration.

    Streams run beside each other at full speed. The full queue of one holds the host up until its
    oldest entry, work or event, is done, as the real one does.

    Args:
        host: the host whose clock the hand-over moves.
        depth: entries that the queue of a stream holds.
        record_ns: time of a stream that a timed event takes.
        cycles_per_ns: clock of the device, by the time at which a spin begins.
    """

    host: FakeHost
    depth: int = 1024
    record_ns: int = 0
    cycles_per_ns: Callable[[int], float] = lambda _: _CYCLES_PER_NS
    cache_overwritten: bool = False
    spins: int = 0
    spun_ns: int = 0
    waits: int = 0
    _free_ns: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _queues: dict[str, deque[int]] = field(default_factory=lambda: defaultdict(deque))
    _used: set[str] = field(default_factory=set)
    _reported: bool = False

    @property
    def free_ns(self) -> int:
        """When the current stream is through with what it has been given."""
        return self._free_ns[CURRENT]

    @property
    def idle_ns(self) -> int:
        """When all streams are."""
        return max(self._free_ns.values(), default=0)

    @contextmanager
    def current(self) -> Iterator[None]:
        """There is only this device."""
        yield

    def event(self) -> FakeEvent:
        """A new mark."""
        return FakeEvent(self)

    def launch(self, *, enqueue_ns: int, device_ns: int, stream: str = CURRENT) -> None:
        """Hand work over to a stream."""
        self.host.spend(enqueue_ns)
        self._used.add(stream)
        queue = self._queues[stream]
        while queue and queue[0] <= self.host.time_ns:
            queue.popleft()
        if len(queue) >= self.depth:
            self.host.wait_until(queue.popleft())
        self._free_ns[stream] = max(self._free_ns[stream], self.host.time_ns) + device_ns
        queue.append(self._free_ns[stream])

    def wait_for(self, other: str, *, stream: str = CURRENT) -> None:
        """Let later work of `stream` begin when the `other` stream is through with its own."""
        self._free_ns[stream] = max(self._free_ns[stream], self._free_ns[other])

    def synchronize(self) -> None:
        """Wait until all queues are empty."""
        self.waits += 1
        self.host.wait_until(self.idle_ns)
        self._queues.clear()

    def item(self) -> None:
        """Wait as an operation like ``.item()`` does: torch would report it."""
        self._reported = True
        self.synchronize()

    def spin(self, cycles: int) -> None:
        """Queue idle turning."""
        self.spins += 1
        begin_ns = max(self.free_ns, self.host.time_ns)
        length_ns = round(cycles / self.cycles_per_ns(begin_ns))
        self.spun_ns += length_ns
        self.launch(enqueue_ns=_RECORD_NS, device_ns=length_ns)

    def other_streams(self, call: Step) -> tuple[Any, ...]:
        """The side streams that it hands work to."""
        self._used.clear()
        call()
        return tuple(stream for stream in self._used if stream != CURRENT)

    def hold(self, streams: Sequence[Any]) -> None:
        """Let them wait for the current one."""
        for stream in streams:
            self.wait_for(CURRENT, stream=stream)

    def allocate_scratch(self) -> int:
        """The size of what is written over the cache."""
        return 1 << 20

    def overwrite_cache(self) -> None:
        """Queue a write over the cache; a kernel that cares looks at `cache_overwritten`."""
        self.cache_overwritten = True
        self.launch(enqueue_ns=1000, device_ns=20_000)

    def synchronizes(self, step: Step) -> bool:
        """Whether the step called :meth:`item`."""
        self._reported = False
        step()
        return self._reported
