"""The two 16-bit types: which device has them, and how to cast to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from gpubench_plugin.precision.base import Batch, Precision

if TYPE_CHECKING:
    from torch import nn


def lacking(dtype: torch.dtype, device: torch.device) -> str | None:
    """Why `device` cannot compute in `dtype` (float16 or bfloat16); None where it can.

    fp16 is everywhere. bf16 that torch emulates, as on CUDA before Ampere, counts as lacking:
    its speed says nothing about the device.
    """
    if dtype is torch.float16 or device.type != "cuda":
        return None
    with torch.cuda.device(device):
        supported = torch.cuda.is_bf16_supported(including_emulation=False)
    return None if supported else f"{torch.cuda.get_device_name(device)} has no bf16"


class TrueHalf(Precision):
    """Parameters, buffers, inputs and arithmetic in `dtype`; no fp32 copy, no loss scaling."""

    dtype: ClassVar[torch.dtype]

    def unsupported(self, device: torch.device) -> str | None:
        """No arithmetic in `dtype` on the device."""
        return lacking(self.dtype, device)

    def convert_module(self, module: nn.Module) -> nn.Module:
        """Floating parameters and buffers cast to `dtype`."""
        return module.to(dtype=self.dtype)

    def convert_batch(self, batch: Batch) -> Batch:
        """Floating tensors in tuples, lists and dictionaries cast to `dtype`."""
        converted: Batch = _cast(batch, self.dtype)
        return converted


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    if isinstance(value, Mapping):
        return {key: _cast(item, dtype) for key, item in value.items()}
    if isinstance(value, tuple | list):
        items = [_cast(item, dtype) for item in value]
        is_named = hasattr(value, "_fields")
        return type(value)(*items) if is_named else type(value)(items)
    return value
