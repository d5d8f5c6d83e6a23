"""What the precisions that run under autocast have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch

from gpubench_plugin.precision._half import lacking
from gpubench_plugin.precision.base import Precision

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


class Autocast(Precision):
    """fp32 parameters; each operation of the forward pass in `dtype` where autocast lists it.

    Source: https://docs.pytorch.org/docs/stable/amp.html
    """

    dtype: ClassVar[torch.dtype]

    def unsupported(self, device: torch.device) -> str | None:
        """No autocast for the type of device, or no arithmetic in `dtype` on it."""
        if not torch.amp.is_autocast_available(device.type):
            return f"torch has no autocast on {device.type}"
        return lacking(self.dtype, device)

    def forward_context(self, device: torch.device) -> AbstractContextManager[object]:
        """Autocast to `dtype`."""
        return torch.autocast(device.type, dtype=self.dtype)
