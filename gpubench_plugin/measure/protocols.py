"""Protocols of the measuring loop: the subject under measurement and the agreement of ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from gpubench_plugin.records import Check, Work

Log = Callable[[Mapping[str, object]], None]


class Subject(Protocol):
    """A thing under measurement that knows more of itself than its duration, a trainer for example.

    It checks itself before the timing and counts while it runs.
    """

    def prepare(self, log: Log) -> Check:
        """Check, untimed, that what will be measured is right; `log` journals its progress.

        Raises:
            CorrectnessError: it is not.
        """

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
