"""How the ranks of one benchmark stay in step: rank zero decides, every rank obeys."""

from __future__ import annotations

from typing import Protocol


class Agreement(Protocol):
    """What the loop needs of the ranks around it. Used between blocks only, never while timing."""

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
