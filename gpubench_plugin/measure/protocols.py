"""Protocols of measuring: what is checked, the subject that is timed, the agreement of ranks."""

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

    It checks itself before the timing and counts while it runs.
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


@runtime_checkable
class Brief(Protocol):
    """A subject whose step is long, a whole training, and made of many alike."""

    def brief_step(self) -> object:
        """Do a little of the step: it computes, and takes memory, as all of it does."""


class Agreement(Protocol):
    """How the ranks of one benchmark stay in step: rank zero decides, every rank obeys.

    The loop uses it between blocks only, never while timing.
    """

    @property
    def world_size(self) -> int:
        """The number of ranks that take part."""
        ...

    def decide(self, proposal: int) -> int:
        """Rank zero's proposal, on every rank; no rank returns before all have asked."""
        ...

    def barrier(self) -> None:
        """Return once every rank is here."""
        ...


class Alone:
    """The agreement of a single rank with itself."""

    world_size = 1

    def decide(self, proposal: int) -> int:
        """The proposal."""
        return proposal

    def barrier(self) -> None:
        """Nobody to wait for."""
