"""What the ranks that train together tell each other before and after the timed steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class Agreement(Protocol):
    """What a check needs of the ranks around it, so that all of them find the same."""

    @property
    def world_size(self) -> int:
        """The number of ranks that take part."""
        ...

    def mean(self, values: Sequence[float]) -> list[float]:
        """The mean over the ranks of each of `values`, on every rank; NaN where one has NaN.

        Every rank must call it, with equally many values.
        """
        ...


class Alone:
    """The agreement of a single rank with itself."""

    world_size = 1

    def mean(self, values: Sequence[float]) -> list[float]:
        """The values."""
        return list(values)
