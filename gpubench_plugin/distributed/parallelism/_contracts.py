"""What a parallelism asks of workload, batches and precision, and how it may run a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import torch
    from torch import Tensor, nn

    from gpubench_plugin.config.sections import ModelSection


class Examples(Protocol):
    """A batch: what goes into the model, and what should come out."""

    @property
    def inputs(self) -> Tensor:
        """One row per sample."""
        ...

    @property
    def targets(self) -> Tensor:
        """One row per sample."""
        ...


class Cut(Protocol):
    """A model in stages, as ``workloads.base.Stages`` describes it."""

    @property
    def modules(self) -> tuple[nn.Module, ...]:
        """In their order."""
        ...

    @property
    def between(self) -> tuple[int, ...]:
        """The shape of what one sample is between two of them."""
        ...

    @property
    def loss(self) -> Callable[[Tensor, Tensor], Tensor]:
        """From the last output and the targets."""
        ...


class Divisible(Protocol):
    """What a parallelism asks of a workload; see ``workloads.base.Workload``."""

    @property
    def section(self) -> ModelSection:
        """How its model is configured."""
        ...

    def tensor_plan(self, ranks: int) -> Mapping[str, str] | None:
        """How `ranks` share its layers; None: nobody knows."""
        ...

    def stages(self, module: nn.Module, count: int) -> Cut | None:
        """Its built `module` in stages; None: nobody knows where to cut."""
        ...


class Numerics(Protocol):
    """What a parallelism asks of a precision; see ``precision.base.Precision``."""

    def forward_context(self, device: torch.device) -> AbstractContextManager[object]:
        """Where the forward pass and the loss run."""
        ...

    def scaler(self, device: torch.device, *, init_scale: float, growth_interval: int) -> object:
        """What scales the loss; None: nothing."""
        ...


class Passes(Protocol):
    """The forward and backward passes of a batch where they are not one after the other."""

    @property
    def parameter_names(self) -> Sequence[str]:
        """Of all parameters to train, on whichever rank; a rank's own model has some of these."""
        ...

    def __call__(self, module: nn.Module, batch: Examples) -> Tensor:
        """Add the gradients of `batch`; a number whose mean over the ranks is its loss."""
        ...
