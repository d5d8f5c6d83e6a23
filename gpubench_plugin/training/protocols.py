"""Protocols of training: the agreement of the ranks, and passes in a parallelism's own order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn

    from gpubench_plugin.workloads import Batch


class Agreement(Protocol):
    """What the ranks that train together tell each other before and after the timed steps.

    Checks need it, so that all ranks find the same.
    """

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


class Passes(Protocol):
    """The forward and backward passes of a batch, where a parallelism runs them in its own order.

    A trainer runs this instead of the loss and its backward pass; it enters the precision.
    """

    @property
    def parameter_names(self) -> Sequence[str]:
        """Of all parameters to train, on whichever rank; a rank's own model has some of these."""
        ...

    def __call__(self, module: nn.Module, batch: Batch) -> Tensor:
        """Add the gradients of `batch`; a number whose mean over the ranks is its loss."""
        ...
