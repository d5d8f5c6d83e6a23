"""What a precision may change, each a method that does nothing here."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, ClassVar, TypeVar

if TYPE_CHECKING:
    import torch
    from torch import nn

Batch = TypeVar("Batch")


class Precision:
    """A numeric precision: a subclass states only what it does differently.

    The life of one: ask :meth:`unsupported`, stay within :meth:`switches`, convert the module
    before the optimizer sees its parameters, convert every batch, run the forward pass and the
    loss within :meth:`forward_context`, and scale the loss where there is a :meth:`scaler`.
    """

    name: ClassVar[str]
    """What the user writes; a base class of several precisions has none."""

    compute_dtype: ClassVar[str]
    """What matrix products compute in, which selects the peak for MFU: fp32, tf32, fp16 or bf16."""

    where: ClassVar[str] = "everywhere"
    """The devices that have it; on this machine, ask :meth:`unsupported`."""

    def unsupported(self, device: torch.device) -> str | None:
        """Why `device` lacks this precision; None where it has it."""
        return None

    def switches(self) -> AbstractContextManager[None]:
        """The global switches of torch set for this precision, and put back afterwards."""
        return nullcontext()

    def convert_module(self, module: nn.Module) -> nn.Module:
        """The `module` with its parameters and buffers in this precision, changed in place."""
        return module

    def convert_batch(self, batch: Batch) -> Batch:
        """The `batch` with its floating tensors in this precision; all else is kept."""
        return batch

    def forward_context(self, device: torch.device) -> AbstractContextManager[object]:
        """Where the forward pass and the loss run; the backward pass runs outside."""
        return nullcontext()

    def scaler(
        self, device: torch.device, *, init_scale: float, growth_interval: int
    ) -> torch.amp.GradScaler | None:
        """A new scaler of the loss, which keeps small fp16 gradients from vanishing."""
        return None


BASE = Precision
