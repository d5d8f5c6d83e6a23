"""Attention whose query heads share keys and values, in the memory of a GPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gpubench_plugin.workloads._grouped_attention import with_folded_groups

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

HEADS, KEY_HEADS, LENGTH, WIDTH = 32, 4, 4096, 64
CACHE_BYTES = KEY_HEADS * LENGTH * WIDTH * 2


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
