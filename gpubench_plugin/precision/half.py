"""The 16-bit dtypes, for everything or under autocast."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubench_plugin.precision.base import TruePrecision, TypedPrecision

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import torch


class Half(TypedPrecision):
    """A precision whose `compute_dtype` is ``fp16`` or ``bf16``."""

    def unsupported(self, device: torch.device) -> str | None:
        """Refuse a device without `dtype` arithmetic, or with emulated bf16 (CUDA pre-Ampere)."""
        import torch

        if self.compute_dtype == "fp16" or device.type != "cuda":
            return None
        with torch.cuda.device(device):
            supported = torch.cuda.is_bf16_supported(including_emulation=False)
        return None if supported else f"{torch.cuda.get_device_name(device)} does not support bf16"


class BF16True(Half, TruePrecision):
    """Weights, inputs and arithmetic in bf16."""

    name = "bf16-true"
    where = "devices with bf16: cpu, cuda from Ampere on, xpu"
    compute_dtype = "bf16"
    aliases = ("bfloat16", "bf16-pure", "pure-bf16")


class FP16True(Half, TruePrecision):
    """Weights, inputs and arithmetic in fp16: for inference; training may underflow."""

    name = "fp16-true"
    where = "everywhere; slow on a cpu"
    compute_dtype = "fp16"
    aliases = ("fp16", "float16", "half", "f16", "pure-fp16", "fp16-pure")


class Autocast(Half):
    """fp32 parameters; autocast runs eligible forward operations in `dtype`.

    Source: https://docs.pytorch.org/docs/stable/amp.html
    """

    # Its cache of cast weights ends with the context, which is that of one forward pass.
    casts_weights = True

    def unsupported(self, device: torch.device) -> str | None:
        """Refuse a device without autocast, or without `dtype` arithmetic."""
        import torch

        if not torch.amp.is_autocast_available(device.type):
            return f"torch does not support autocast on {device.type}"
        return super().unsupported(device)

    def forward_context(self, device: torch.device) -> AbstractContextManager[object]:
        """Autocast to `dtype` on that device."""
        import torch

        return torch.autocast(device.type, dtype=self.dtype)


class BF16(Autocast):
    """bf16 autocast; no scaler, since bf16 has the exponents of fp32."""

    name = "bf16"
    where = "devices with autocast and bf16: cpu, cuda from Ampere on, xpu"
    compute_dtype = "bf16"
    aliases = ("bfloat16", "bf16-mixed", "bf16-amp", "amp-bf16", "mixed", "autocast")


class AMP(Autocast):
    """fp16 autocast with a gradient scaler."""

    name = "amp"
    where = "devices with autocast: cpu, cuda, mps, xpu"
    compute_dtype = "fp16"
    aliases = ("fp16", "float16", "half", "f16", "fp16-mixed", "16-mixed", "mixed", "autocast")

    def scaler(
        self, device: torch.device, *, init_scale: float, growth_interval: int
    ) -> torch.amp.GradScaler:
        """The gradient scaler, which skips steps whose gradients overflow and lowers its scale."""
        from torch.amp import GradScaler

        return GradScaler(device.type, init_scale=init_scale, growth_interval=growth_interval)
