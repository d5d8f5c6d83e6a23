"""Parts of workloads on a GPU: where they wait for it, and what memory they take."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gpubench_plugin.measure.clocks.cuda_device import TorchCuda
from gpubench_plugin.workloads._language import with_folded_groups
from gpubench_plugin.workloads.moe.experts import Grouped

pytestmark = pytest.mark.gpu_clocks
DEVICE = torch.device("cuda", 0)

HEADS, KEY_HEADS, LENGTH, WIDTH = 32, 4, 4096, 64
CACHE_BYTES = KEY_HEADS * LENGTH * WIDTH * 2


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


def peak_bytes(*, length: int, dtype: Any, mask: Any) -> int:
    """The most memory that attention of `length` queries takes beside its operands."""
    from transformers import AttentionInterface

    query, key, value = (
        torch.randn(1, heads, tokens, WIDTH, device="cuda", dtype=dtype)
        for heads, tokens in ((HEADS, length), (KEY_HEADS, LENGTH), (KEY_HEADS, LENGTH))
    )
    module = SimpleNamespace(num_key_value_groups=HEADS // KEY_HEADS, is_causal=True)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    attention = with_folded_groups(AttentionInterface()["sdpa"])
    attention(module, query, key, value, mask, scaling=None, dropout=0.0)
    return int(torch.cuda.max_memory_allocated() - before)


def test_a_token_copies_no_cache() -> None:
    """Neither keys nor values are written out for every head, which took fourteen caches more."""
    mask = (torch.arange(LENGTH, device="cuda") < 3000).view(1, 1, 1, -1)
    assert peak_bytes(length=1, dtype=torch.bfloat16, mask=mask) < CACHE_BYTES


def test_fp32_saves_no_scores() -> None:
    """A prompt in fp32 takes a fused kernel: less memory than a quarter of all scores."""
    scores_bytes = HEADS * LENGTH * LENGTH * 4
    assert peak_bytes(length=LENGTH, dtype=torch.float32, mask=None) < scores_bytes / 4
