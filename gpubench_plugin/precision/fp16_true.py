"""Pure fp16."""

from __future__ import annotations

import torch

from gpubench_plugin.precision._half import TrueHalf


class FP16True(TrueHalf):
    """Weights, inputs and arithmetic in fp16: for inference; training may underflow."""

    name = "fp16-true"
    where = "everywhere; slow on a cpu"
    compute_dtype = "fp16"
    dtype = torch.float16
