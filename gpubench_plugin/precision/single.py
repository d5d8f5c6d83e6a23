"""fp32 storage: products in IEEE single precision, or in TensorFloat-32 on tensor cores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubench_plugin.precision.base import Precision

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import torch


class FP32(Precision):
    """Everything in IEEE single precision: neither TF32 nor bf16 inside, as torch may do."""

    name = "fp32"
    compute_dtype = "fp32"

    def switches(self) -> AbstractContextManager[None]:
        """TF32 and bf16 off in matrix products, convolutions and recurrent layers."""
        from gpubench_plugin.precision._fp32_switches import fp32_computed_in

        return fp32_computed_in("ieee")


class TF32(Precision):
    """fp32 tensors; matrix products and convolutions on TF32 tensor cores.

    They are rounded to 10 bits of mantissa. Source: NVIDIA A100 Tensor Core GPU Architecture,
    whitepaper, 2020.
    """

    name = "tf32"
    where = "cuda from Ampere on"
    compute_dtype = "tf32"

    def unsupported(self, device: torch.device) -> str | None:
        """Only CUDA from Ampere on (compute capability 8.0) and some AMD GPUs have TF32."""
        import torch

        if device.type != "cuda":
            return f"TF32 exists on CUDA devices only, not on {device.type}"
        with torch.cuda.device(device):
            supported = torch.cuda.is_tf32_supported()
        return None if supported else f"{torch.cuda.get_device_name(device)} has no TF32"

    def switches(self) -> AbstractContextManager[None]:
        """TF32 on in matrix products, convolutions and recurrent layers."""
        from gpubench_plugin.precision._fp32_switches import fp32_computed_in

        return fp32_computed_in("tf32")
