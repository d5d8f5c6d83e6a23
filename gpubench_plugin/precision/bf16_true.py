"""Pure bf16."""

from __future__ import annotations

import torch

from gpubench_plugin.precision._half import TrueHalf


class BF16True(TrueHalf):
    """Weights, inputs and arithmetic in bf16."""

    name = "bf16-true"
    where = "devices with bf16: cpu, cuda from Ampere on, xpu"
    compute_dtype = "bf16"
    dtype = torch.bfloat16
