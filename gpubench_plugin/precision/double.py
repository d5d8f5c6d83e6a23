"""fp64 for everything: weights, inputs and arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubench_plugin.precision.base import TruePrecision

if TYPE_CHECKING:
    import torch


class FP64(TruePrecision):
    """IEEE double precision everywhere; the losses of most workloads are computed in fp32."""

    name = "fp64"
    aliases = ("float64", "double", "f64")
    where = "cpu, cuda, xpu with double precision"
    compute_dtype = "fp64"

    def unsupported(self, device: torch.device) -> str | None:
        """Refuse a device on which torch has no fp64 tensors."""
        import torch

        try:
            torch.ones(1, dtype=torch.float64, device=device)
        except (TypeError, RuntimeError) as error:
            return f"{device.type} does not support fp64: {error}".partition("\n")[0]
        return None
