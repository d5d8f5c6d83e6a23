"""Base of language models: sizes, data, loss, construction, static cache."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any, ClassVar, Self, TypeVar

import torch
from pydantic import model_validator
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

from gpubench_plugin.config.sections import ModelSection, PositiveInt
from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.workloads._transformers import NEEDS_TRANSFORMERS, from_library, recomputing
from gpubench_plugin.workloads.base import Batch, Workload

Attention = Callable[..., "tuple[Tensor, Tensor | None]"]


class CachedModel:
    """The `module` of a causal language model with a static KV cache.

    All calls share transformers' ``StaticCache`` for `length` tokens of `sequences` rows. Its
    addresses are fixed, for compilation and graph capture, its token count is a tensor, and nothing
    here synchronizes.
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
        config = module.config
        heads = config.num_attention_heads
        self._module = module
        # The second name until transformers 5.23. A subclass may pass its keywords on.
        forwards = filter(None, (vars(kind).get("forward") for kind in type(module).__mro__))
        is_new = any("cache" in signature(forward).parameters for forward in forwards)
        self._cache_name = "cache" if is_new else "past_key_values"
        self._cache = _cast_cache(name, dtype)(config=config, max_cache_len=length)
        self._cache.early_initialization(
            batch_size=sequences,
            num_heads=getattr(config, "num_key_value_heads", heads),
            head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
            dtype=dtype,
            device=device,
        )
        self._lengths: list[Tensor] = [layer.cumulative_length for layer in self._cache.layers]
        self._slots = torch.arange(length, device=device)

    def reset_position(self, position: int) -> None:
        """Reset the cache position to `position` tokens."""
        torch._foreach_zero_(self._lengths)  # one kernel for all layers
        if position:
            torch._foreach_add_(self._lengths, position)

    def prefill(self, tokens: Tensor) -> Tensor:
        """Prefill the empty cache with a prompt, N×L; next-token logits, N×vocabulary."""
        return self._last_logits(tokens, mask=None)

    def decode(self, tokens: Tensor) -> Tensor:
        """Append one token per row, N×1; next-token logits, N×vocabulary."""
        # Attention covers the full cache, so that every call does the same work.
        return self._last_logits(tokens, mask=self._slots <= self._cache.get_seq_length())

    def uncached(self, tokens: Tensor, *, last_positions: int) -> Tensor:
        """Logits at the `last_positions` of `tokens`, N×last×vocabulary, without the cache."""
        logits: Tensor = self._module(input_ids=tokens, logits_to_keep=last_positions).logits
        return logits

    def _last_logits(self, tokens: Tensor, *, mask: Tensor | None) -> Tensor:
        logits: Tensor = self._module(
            input_ids=tokens,
            attention_mask=None if mask is None else mask.view(1, 1, 1, -1),
            use_cache=True,
            logits_to_keep=1,
            **{self._cache_name: self._cache},
        ).logits
        return logits[:, -1]


def _cast_cache(name: str | None, dtype: torch.dtype) -> Any:
    """The class of transformers' static cache, which takes keys and values in any precision."""
    (static_cache,) = from_library(name, "transformers", "StaticCache")

    class Cast(static_cache):  # type: ignore[misc,valid-type] # imported when it is needed
        """Static cache that casts: under autocast, rotation makes keys but not values fp32."""

        def update(self, keys: Tensor, values: Tensor, *args: Any, **kwargs: Any) -> Any:
            return super().update(keys.to(dtype), values.to(dtype), *args, **kwargs)

    return Cast


ATTENTION = "gpubench_sdpa"
"""SDPA of transformers without its mask, by ``is_causal``, and without copies of a cache's heads.

transformers builds a mask from the positions, which synchronizes once per forward pass
(``find_packed_sequence_indices``), and under ``torch.compile`` prevents the flash kernel. Samples
here are neither padded nor packed; for an SDPA registered by another name it builds no mask.

Source: https://huggingface.co/docs/transformers/attention_interface
"""


class LanguageSection(ModelSection):
    """Sizes of a transformer, by default those of the model it is named after."""

    multiples: ClassVar = {"width": "heads"}

    layers: PositiveInt = 12
    """Transformer blocks"""
    width: PositiveInt = 768
    """Model width"""
    heads: PositiveInt = 12
    """Attention heads"""
    intermediate_size: PositiveInt = 3072
    """Width of the feed-forward layers"""
    vocabulary: PositiveInt = 50257
    """Vocabulary size"""
    sequence_length: PositiveInt = 1024
    """Sequence length"""


class RotarySection(LanguageSection):
    """Sizes of a transformer with grouped-query attention and rotary embeddings."""

    multiples: ClassVar = {"width": "heads", "heads": "key_value_heads"}

    vocabulary: PositiveInt = 32000
    """Vocabulary size"""
    sequence_length: PositiveInt = 2048
    """Sequence length"""
    key_value_heads: PositiveInt = 4
    """Key and value heads; divides heads"""

    @model_validator(mode="after")
    def _check_rotary_heads(self) -> Self:
        if (features := self.width // self.heads) % 2:
            raise ValueError(
                f"width {self.width} / heads {self.heads} is {features}: rotary embeddings "
                "need an even head size"
            )
        return self


S = TypeVar("S", bound=LanguageSection)


class LanguageModel(Workload[S]):
    """A transformer over tokens; subclasses name its transformers classes and data."""

    checkpoints_activations = True
    where = NEEDS_TRANSFORMERS
    configuration: ClassVar[str]
    """The class of its configuration in transformers."""

    architecture: ClassVar[str]
    """The class of the model in transformers."""

    def __init__(self, section: S):
        super().__init__(section)
        self.tokens_per_sample = section.sequence_length

    def hyperparameters(self) -> dict[str, Any]:
        """Arguments of its transformers configuration: sizes, without dropout."""
        return {
            "num_hidden_layers": self.section.layers,
            "hidden_size": self.section.width,
            "num_attention_heads": self.section.heads,
            "intermediate_size": self.section.intermediate_size,
            "vocab_size": self.section.vocabulary,
            "max_position_embeddings": self.section.sequence_length,
            "use_cache": False,
            "bos_token_id": None,
            "eos_token_id": None,
        }

    def build(self) -> nn.Module:
        """The model with random weights, without dropout, using SDPA."""
        interface, configuration, architecture = from_library(
            self.section.name,
            "transformers",
            "AttentionInterface",
            self.configuration,
            self.architecture,
        )
        interface.register(ATTENTION, with_folded_groups(interface()["sdpa"]))
        config = configuration(**self.hyperparameters(), attn_implementation=ATTENTION)
        return recomputing(architecture(config), self.section)

    def forward(self, module: nn.Module, batch: Batch) -> Tensor:
        """Logits of the next token at every position, N×L×vocabulary."""
        logits: Tensor = module(input_ids=batch.inputs).logits
        return logits

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        """Mean cross entropy over targets in fp32; target −100 is ignored."""
        return token_loss(self.forward(module, batch), batch.targets)


def token_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross entropy of `logits`, N×L×vocabulary, over `targets`, N×L, in fp32."""
    return cross_entropy(logits.float().flatten(0, 1), targets.flatten())


class CausalLanguageModel(LanguageModel[S]):
    """A language model that predicts each token from the preceding ones."""

    def synthetic_batch(
        self, size: int, *, device: torch.device, generator: torch.Generator | None = None
    ) -> Batch:
        """Tokens, N×L, and successors; rows count up from a random start: a learnable rule."""
        vocabulary = self.section.vocabulary
        start = torch.randint(vocabulary, (size, 1), device=device, generator=generator)
        offsets = torch.arange(self.section.sequence_length + 1, device=device)
        return _shifted((start + offsets) % vocabulary)

    def from_text(self, tokens: Tensor) -> Batch:
        """All tokens of a row but the last, N×L, and their successors."""
        section, largest, length = self.section, int(tokens.max()), tokens.shape[1] - 1
        if largest >= section.vocabulary or length != section.sequence_length:
            raise UsageProblem(
                f"the text has rows of {length} tokens with ids up to {largest}, which do not fit "
                f"model.sequence_length={section.sequence_length} and "
                f"model.vocabulary={section.vocabulary}"
            )
        return _shifted(tokens)


def _shifted(tokens: Tensor) -> Batch:
    return Batch(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())


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
