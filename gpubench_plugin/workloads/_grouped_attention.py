"""Attention of one query token to a cache whose heads are fewer than the query's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.nn.functional import scaled_dot_product_attention

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    Attention = Callable[..., tuple[Tensor, Tensor | None]]


def with_folded_groups(attention: Attention) -> Attention:
    """Wrap transformers' `attention` so that decoding reads each head of the cache once.

    Of one token, the G queries that share a head of keys are as good as G tokens of that head:
    B×(H·G)×1×D becomes B×H×G×D, and SDPA reads keys and values, B×H×S×D, as they are. With a mask
    transformers repeats them for each query instead, before 5.23 always and since then while
    compiling: G times the cache is written and read per token. Everything else is `attention`'s: of
    a prompt, which has no mask, transformers has SDPA group the heads (``enable_gqa``).

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
        rows, heads, tokens, features = query.shape
        key_heads = key.shape[1]
        shared_mask = attention_mask is None or attention_mask.shape[1] == 1
        if tokens != 1 or heads == key_heads or not shared_mask or options.get("dropout"):
            return attention(module, query, key, value, attention_mask, **options)
        output = scaled_dot_product_attention(
            query.reshape(rows, key_heads, heads // key_heads, features),
            key,
            value,
            attn_mask=attention_mask,
            scale=options.get("scaling"),
        )
        return output.reshape(rows, 1, heads, value.shape[-1]), None

    return attend
