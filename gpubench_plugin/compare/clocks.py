"""Whether two clocks take the same kind of time, whatever they are called."""

from __future__ import annotations

import re
from typing import Final

from gpubench_plugin.compare.gated import device_timed

_WALL: Final = frozenset({"perf_counter", "monotonic", "time", "default_timer"})
_WAITING: Final = re.compile(r"(cuda|xpu|mps)_synchronised(_|$)")
_MODULE: Final = re.compile(r"(time|timeit)\.")


def alike(one: str, other: str) -> bool:
    """Whether both are the device's, both wall time of the host, or else of one name.

    Processor time is of another kind than wall time, and a process's of another than a thread's. A
    clock that waits for the device before it is read is of the kind that it reads.
    """
    return _kind(one) == _kind(other)


def _kind(timer: str) -> str:
    if device_timed(timer):
        return "the device's"
    name = _MODULE.sub("", _WAITING.sub("", timer, count=1), count=1).removesuffix("_ns")
    return "wall time" if name in _WALL or not name else name
