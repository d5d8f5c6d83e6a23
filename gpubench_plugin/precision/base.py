"""Precision base class, with no-op defaults for everything a precision may change."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, ClassVar, TypeVar

from gpubench_plugin.precision._nested import cast_floating

if TYPE_CHECKING:
    import torch
    from torch import nn

Batch = TypeVar("Batch")


class Precision:
    """A numeric precision; subclasses override what differs.

    Call :meth:`unsupported`, enter :meth:`switches`, convert the module before building the
    optimizer, convert every batch, run the forward pass and the loss within
    :meth:`forward_context`, and scale the loss if there is a :meth:`scaler`.
    """

    name: ClassVar[str]
    """Value of ``--precision``; a base class of several precisions has none."""

    compute_dtype: ClassVar[str]
    """Dtype of matrix products, which selects the peak for MFU: fp64, fp32, tf32, fp16 or bf16."""

    aliases: ClassVar[tuple[str, ...]] = ()
    """Other words for it, in lower case, that messages answer with its `name`."""

    unlike_any: ClassVar[tuple[str, ...]] = (
        *("fp8", "float8", "fp4", "nvfp4", "mxfp4", "mxfp8", "int8", "int4"),
    )
    """Words for precisions that none here is close to: a similar spelling is no suggestion."""

    casts_weights: ClassVar[bool] = False
    """Whether every forward pass casts all weights that it multiplies."""

    where: ClassVar[str] = "everywhere"
    """Devices that support it, for the documentation; see :meth:`unsupported`."""

    def unsupported(self, device: torch.device) -> str | None:
        """Reason `device` does not support this precision; None if it does."""
        return None

    def switches(self) -> AbstractContextManager[None]:
        """Context that sets torch's global switches and restores them afterwards."""
        return nullcontext()

    def convert_module(self, module: nn.Module) -> nn.Module:
        """Convert the parameters and buffers of `module` in place."""
        return module

    def convert_batch(self, batch: Batch) -> Batch:
        """Convert the floating-point tensors of `batch`."""
        return batch

    def forward_context(self, device: torch.device) -> AbstractContextManager[object]:
        """Context of the forward pass and the loss, but not of the backward pass."""
        return nullcontext()

    def scaler(
        self, device: torch.device, *, init_scale: float, growth_interval: int
    ) -> torch.amp.GradScaler | None:
        """New loss scaler, which keeps small fp16 gradients from underflowing."""
        return None


class TypedPrecision(Precision):
    """A precision whose `compute_dtype` is ``fp64``, ``fp16`` or ``bf16``."""

    @property
    def dtype(self) -> torch.dtype:
        """The `compute_dtype` as a torch dtype."""
        import torch

        dtypes = {"fp64": torch.float64, "fp16": torch.float16, "bf16": torch.bfloat16}
        return dtypes[self.compute_dtype]


class TruePrecision(TypedPrecision):
    """Parameters, buffers, inputs and arithmetic in `dtype`, without fp32 copy or loss scaling."""

    def convert_module(self, module: nn.Module) -> nn.Module:
        """Floating parameters and buffers cast to `dtype`."""
        # Unlike .to(), these leave complex ones as they are.
        casts = {"fp64": module.double, "fp16": module.half, "bf16": module.bfloat16}
        return casts[self.compute_dtype]()

    def convert_batch(self, batch: Batch) -> Batch:
        """Floating tensors in tuples, lists and dictionaries cast to `dtype`."""
        converted: Batch = cast_floating(batch, self.dtype)
        return converted


BASE = Precision
