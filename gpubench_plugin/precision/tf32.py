"""TensorFloat-32: fp32 storage, products rounded to 10 bits of mantissa on tensor cores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from gpubench_plugin.precision._fp32_switches import fp32_computed_in
from gpubench_plugin.precision.base import Precision

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


class TF32(Precision):
    """fp32 tensors; matrix products and convolutions on TF32 tensor cores.

    Source: NVIDIA A100 Tensor Core GPU Architecture, whitepaper, 2020.
    """

    name = "tf32"
    where = "cuda from Ampere on"
    compute_dtype = "tf32"

    def unsupported(self, device: torch.device) -> str | None:
        """Only CUDA from Ampere on (compute capability 8.0) and some AMD GPUs have TF32."""
        if device.type != "cuda":
            return f"TF32 exists on CUDA devices only, not on {device.type}"
        with torch.cuda.device(device):
            supported = torch.cuda.is_tf32_supported()
        return None if supported else f"{torch.cuda.get_device_name(device)} has no TF32"

    def switches(self) -> AbstractContextManager[None]:
        """TF32 on in matrix products, convolutions and recurrent layers."""
        return fp32_computed_in("tf32")
