"""Automatic mixed precision in fp16."""

from __future__ import annotations

import torch

from gpubench_plugin.precision._autocast import Autocast


class AMP(Autocast):
    """fp16 autocast with a real gradient scaler."""

    name = "amp"
    where = "devices with autocast: cpu, cuda, mps, xpu"
    compute_dtype = "fp16"
    dtype = torch.float16

    def scaler(
        self, device: torch.device, *, init_scale: float, growth_interval: int
    ) -> torch.amp.GradScaler:
        """The scaler; it skips a step whose gradients overflow, and halves its scale."""
        return torch.amp.GradScaler(
            device.type, init_scale=init_scale, growth_interval=growth_interval
        )
