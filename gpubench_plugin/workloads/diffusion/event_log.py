"""What one rank does in one call of the pipeline, and when."""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import perf_counter
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpubench_plugin.records import Json


class EventLog:
    """Events with their beginning and their length, in seconds since the log was opened.

    It waits for the `device` around each, so it belongs to a call that is not timed.
    """

    def __init__(self, device: torch.device, now: Callable[[], float] = perf_counter):
        self._device = device
        self._now = now
        self._opened = now()
        self.events: list[Json] = []

    @contextmanager
    def during(self, event: str, **facts: object) -> Iterator[None]:
        """Note the body as an `event`, also where it fails."""
        self._wait()
        began = self._now()
        try:
            yield
        finally:
            self._wait()
            self.events.append(
                {
                    "event": event,
                    **facts,
                    "at_s": began - self._opened,
                    "duration_s": self._now() - began,
                }
            )

    def _wait(self) -> None:
        if self._device.type != "cpu":
            torch.accelerator.synchronize(self._device)


def noted(log: EventLog | None, event: str, **facts: object) -> AbstractContextManager[None]:
    """The body noted in `log`; without one nothing is noted, and nothing waited for."""
    return nullcontext() if log is None else log.during(event, **facts)
