"""Mixed precision in bf16."""

from __future__ import annotations

import torch

from gpubench_plugin.precision._autocast import Autocast


class BF16(Autocast):
    """bf16 autocast; no scaler, since bf16 has the exponents of fp32."""

    name = "bf16"
    where = "devices with autocast and bf16: cpu, cuda from Ampere on, xpu"
    compute_dtype = "bf16"
    dtype = torch.bfloat16
