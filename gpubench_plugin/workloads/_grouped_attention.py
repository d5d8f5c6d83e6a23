"""Attention whose keys and values have fewer heads than the query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import scaled_dot_product_attention

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    Attention = Callable[..., tuple[Tensor, Tensor | None]]


def with_folded_groups(attention: Attention) -> Attention:
    """Wrap transformers' `attention` so that decoding reads each head of the cache once.

    Of one token, the G queries that share a head of keys are equivalent to G tokens of that head:
    B×(H·G)×1×D becomes B×H×G×D, and SDPA reads keys and values, B×H×S×D, as they are. With a mask
    transformers repeats them for each query instead, before 5.23 always and since then while
    compiling: G times the cache is written and read per token. Everything else is `attention`'s: of
    a prompt, which has no mask, transformers has SDPA group the heads (``enable_gqa``), unless no
    fused kernel does.

    Source: Ainslie et al. 2023, GQA, https://arxiv.org/abs/2305.13245.
    """

    def attend(
        module: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        **options: Any,
    ) -> tuple[Tensor, Tensor | None]:
        heads, key_heads, tokens = query.shape[1], key.shape[1], query.shape[2]
        shared_mask = attention_mask is None or attention_mask.shape[1] == 1
        is_grouped = heads > key_heads and shared_mask and not options.get("dropout")
        if is_grouped and tokens == 1:
            return _attend_with_folded_groups(
                query, key, value, attention_mask, options.get("scaling")
            ), None
        has_kernel = groups_heads(query.device.type, query.dtype)
        if is_grouped and attention_mask is None and not has_kernel:
            return _attend_to_repeated(query, key, value, options.get("scaling")), None
        return attention(module, query, key, value, attention_mask, **options)

    return attend


def _attend_with_folded_groups(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float | None
) -> Tensor:
    """Attention of one token, B×1×(H·G)×D."""
    rows, heads, _tokens, features = query.shape
    key_heads = key.shape[1]
    output = scaled_dot_product_attention(
        query.reshape(rows, key_heads, heads // key_heads, features),
        key,
        value,
        attn_mask=mask,
        scale=scaling,
    )
    return output.reshape(rows, 1, heads, value.shape[-1])


def groups_heads(device_type: str, dtype: torch.dtype) -> bool:
    """Whether fused attention without a mask groups heads, in `dtype` or, if enabled, autocast's.

    On CUDA kernels of fp16 and bf16 do, above all flash attention. In fp32 SDPA would compute and
    save all scores: 4.3 GB per layer of the full Llama. Source: `enable_gqa` in
    https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html
    """
    if device_type != "cuda":
        return True
    if torch.is_autocast_enabled(device_type):
        dtype = torch.get_autocast_dtype(device_type)
    return dtype in {torch.float16, torch.bfloat16}


def _attend_to_repeated(query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
    """Causal attention, B×S×(H·G)×D, with a head of keys and values for each of the query.

    Of a longer static cache only as many tokens as the query has are filled.
    """
    heads, tokens = query.shape[1:3]
    key, value = (
        t[:, :, :tokens].repeat_interleave(heads // t.shape[1], dim=1) for t in (key, value)
    )
    output = scaled_dot_product_attention(query, key, value, scale=scaling, is_causal=True)
    return output.transpose(1, 2).contiguous()
