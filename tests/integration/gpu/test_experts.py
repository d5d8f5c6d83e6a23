"""Grouped experts on a GPU: where torch waits for the device; skipped where there is none."""

from __future__ import annotations

import pytest
import torch

from gpubench_plugin.measure.clocks.cuda_device import TorchCuda
from gpubench_plugin.workloads.moe.experts.grouped import Grouped

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
DEVICE = torch.device("cuda", 0)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("bf16", torch.bfloat16), ("fp16", torch.float16), ("fp32", torch.float32)],
)
def test_torch_waits_for_the_groups_where_that_is_said(name: str, dtype: torch.dtype) -> None:
    """Its own warnings of a wait, forward and backward, agree with `waits`."""
    weights = [
        torch.randn(shape, device=DEVICE, dtype=dtype, requires_grad=True)
        for shape in ((4, 64, 256), (4, 128, 64))
    ]
    experts = Grouped(*weights)
    rows = torch.randn(64, 64, device=DEVICE, dtype=dtype, requires_grad=True)
    counts = torch.full((4,), 16, device=DEVICE)

    def step() -> None:
        experts(rows, counts).backward(torch.ones_like(rows))

    step()  # what is initialised once may wait
    waits = TorchCuda(DEVICE).synchronizes(step)
    assert waits is (Grouped.wait_reason(DEVICE, name) is not None)
