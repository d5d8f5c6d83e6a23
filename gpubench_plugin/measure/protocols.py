"""Protocols of measuring: what is checked, and the subject that is timed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

from gpubench_plugin.records import Check, Work

Log = Callable[[Mapping[str, object]], None]


class Part(Protocol):
    """What stands in a benchmark and has something to check, or to tell, before the timing."""

    def prepare(self, log: Log) -> Check:
        """Check, untimed, that it is right; `log` journals its progress.

        Raises:
            CorrectnessError: it is not.
        """


@runtime_checkable
class Subject(Part, Protocol):
    """A thing whose step can be timed, and that knows more of it than its duration: a trainer.

    It checks itself before the timing and counts while it runs. Where a step is a whole training,
    a method ``brief_step`` may do a little of it: it computes, and takes memory, as all of it does.
    """

    @property
    def calls(self) -> int:
        """Calls of :meth:`step` so far, timed or not: each call is one more."""
        ...

    def step(self) -> object:
        """What is timed."""

    def begin(self) -> None:
        """Reset the counters: the timed calls start now."""

    def finish(self) -> Mapping[str, float]:
        """Facts counted during the timed calls, for `Observation.facts`.

        Raises:
            CorrectnessError: the timed calls went wrong.
        """

    def work(self) -> Work:
        """The work of one call on this rank; FLOPs may be left out."""

    def flops_step(self) -> None:
        """Build everything and run one call's mathematics, to be counted on fake tensors."""
