"""A causal language model that keeps the keys and values of the tokens it has seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from gpubench_plugin.workloads._transformers import from_library

if TYPE_CHECKING:
    from torch import Tensor


class CachedModel:
    """The `module` of a causal language model with a static cache, one for every call.

    The cache is transformers' ``StaticCache``: memory for `length` tokens of `sequences` rows that
    stays where it is, so that calls can be compiled and captured, and a tensor that says how many
    tokens were seen. Nothing here waits for the device.
    """

    def __init__(
        self,
        name: str | None,
        module: Any,
        *,
        sequences: int,
        length: int,
        dtype: torch.dtype,
        device: torch.device,
    ):
        self._module = module
        self._cache = _static_cache(
            name, module.config, sequences=sequences, length=length, dtype=dtype, device=device
        )
        self._seen: list[Tensor] = [layer.cumulative_length for layer in self._cache.layers]
        self._slots = torch.arange(length, device=device)

    def rewind(self, seen: int) -> None:
        """Go on as if `seen` tokens had been seen; what the cache has of later ones is unused."""
        torch._foreach_zero_(self._seen)  # of all layers at once
        if seen:
            torch._foreach_add_(self._seen, seen)

    def first(self, tokens: Tensor) -> Tensor:
        """Take a prompt, N×L, into the empty cache; logits of what follows it, N×vocabulary."""
        return self._last_logits(tokens, mask=None)

    def next(self, tokens: Tensor) -> Tensor:
        """Take one more token of each row, N×1; logits of what follows it, N×vocabulary."""
        # Attention runs over all of the cache, whatever is in it: the same work in every call.
        return self._last_logits(tokens, mask=self._slots <= self._cache.get_seq_length())

    def uncached(self, tokens: Tensor, *, last: int) -> Tensor:
        """Logits at the `last` positions of `tokens`, N×last×vocabulary, without the cache."""
        logits: Tensor = self._module(input_ids=tokens, logits_to_keep=last).logits
        return logits

    def _last_logits(self, tokens: Tensor, *, mask: Tensor | None) -> Tensor:
        logits: Tensor = self._module(
            input_ids=tokens,
            attention_mask=None if mask is None else mask.view(1, 1, 1, -1),
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits
        return logits[:, -1]


def _static_cache(
    name: str | None,
    config: Any,
    *,
    sequences: int,
    length: int,
    dtype: torch.dtype,
    device: torch.device,
) -> Any:
    """An allocated static cache of transformers that takes keys and values in any precision."""
    (static_cache,) = from_library(name, "transformers", "StaticCache")

    class Cast(static_cache):  # type: ignore[misc,valid-type] # imported when it is needed
        """Under autocast the rotation makes keys fp32 while values are not."""

        def update(self, keys: Tensor, values: Tensor, *args: Any, **kwargs: Any) -> Any:
            return super().update(keys.to(dtype), values.to(dtype), *args, **kwargs)

    cache = Cast(config=config, max_cache_len=length)
    heads = config.num_attention_heads
    cache.early_initialization(
        batch_size=sequences,
        num_heads=getattr(config, "num_key_value_heads", heads),
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        dtype=dtype,
        device=device,
    )
    return cache
