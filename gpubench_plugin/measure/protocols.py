"""What a check is, and the protocol of subjects, which are timed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

from gpubench_plugin.core.records import Check, Work

Log = Callable[[Mapping[str, object]], None]

UntimedCheck = Callable[[Log], Check]
"""Check before the timing, which records progress in the journal; raises a CorrectnessError."""


@runtime_checkable
class Subject(Protocol):
    """Object whose step can be timed and that knows its work: a trainer, for example.

    It checks itself before the timing and counts while it runs. If a step is a whole training, an
    optional method ``short_step`` runs a short part with the same computation and memory.
    """

    def prepare(self, log: Log) -> Check:
        """Run the untimed check; `log` records progress in the journal.

        Raises:
            CorrectnessError: the check failed.
        """

    @property
    def calls(self) -> int:
        """Number of calls of :meth:`step` so far, timed or not."""

    def step(self) -> object:
        """The step to time."""

    def begin(self) -> None:
        """Reset the counters: the timed calls start now."""

    def finish(self) -> Mapping[str, float]:
        """Facts counted during the timed calls, for `Observation.facts`.

        Raises:
            CorrectnessError: the timed calls went wrong.
        """

    def work(self) -> Work:
        """Work of one call on this rank; FLOPs may be omitted."""

    def flops_step(self) -> None:
        """Run one call's computation from scratch, for FLOP counting on fake tensors."""
