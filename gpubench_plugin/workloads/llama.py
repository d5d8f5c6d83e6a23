"""Llama of Touvron et al. 2023 (https://arxiv.org/abs/2302.13971), from transformers."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from gpubench_plugin.config.sections import PositiveInt
from gpubench_plugin.core.errors import Unsupported
from gpubench_plugin.workloads._language import CausalLanguageModel, RotarySection, token_loss
from gpubench_plugin.workloads.base import Stages


class LlamaSection(RotarySection):
    """Sizes of a Llama, by default with 1.1 billion parameters."""

    layers: PositiveInt = 22
    """Transformer blocks"""
    width: PositiveInt = 2048
    """Model width"""
    heads: PositiveInt = 32
    """Attention heads"""
    intermediate_size: PositiveInt = 5632
    """Width of the feed-forward layers"""


class Llama(CausalLanguageModel[LlamaSection]):
    """Llama language model: rotary embeddings, RMS norm, SwiGLU, grouped-query attention."""

    Section = LlamaSection
    configuration = "LlamaConfig"
    architecture = "LlamaForCausalLM"

    def hyperparameters(self) -> dict[str, Any]:
        """Arguments of a language model, and the number of KV heads."""
        return super().hyperparameters() | {"num_key_value_heads": self.section.key_value_heads}

    def tensor_plan(self, ranks: int) -> Mapping[str, str]:
        """Heads, feed-forward features and vocabulary, each sharded evenly.

        Source: Shoeybi et al., Megatron-LM (2019), section 3, https://arxiv.org/abs/1909.08053
        """
        for key in ("heads", "key_value_heads", "intermediate_size", "vocabulary"):
            if (size := getattr(self.section, key)) % ranks:
                raise Unsupported(f"model.{key}={size} is not divisible by {ranks} ranks")
        attention, feed_forward = "model.layers.*.self_attn", "model.layers.*.mlp"
        return {
            "model.embed_tokens": "vocabulary",
            **{f"{attention}.{name}_proj": "colwise" for name in "qkv"},
            f"{attention}.o_proj": "rowwise",
            f"{feed_forward}.gate_proj": "colwise",
            f"{feed_forward}.up_proj": "colwise",
            f"{feed_forward}.down_proj": "rowwise",
            "lm_head": "colwise-gathered",
        }

    def stages(self, module: nn.Module, count: int) -> Stages:
        """Blocks in `count` nearly equal parts, with embedding and head at the ends."""
        return decoder_stages(module, count)


class DecoderStage(nn.Module):
    """Some decoder blocks; the first stage embeds tokens, the last computes logits."""

    def __init__(self, decoder: Any, blocks: range):
        super().__init__()
        model = decoder.model
        is_first, is_last = blocks.start == 0, blocks.stop == len(model.layers)
        self.embed_tokens = model.embed_tokens if is_first else None
        self.rotary_emb = model.rotary_emb
        self.layers = nn.ModuleList(model.layers[block] for block in blocks)
        self.norm = model.norm if is_last else None
        self.lm_head = decoder.lm_head if is_last else None

    def forward(self, inputs: Tensor) -> Tensor:
        """Map tokens, N×L, or hidden states, N×L×width, to hidden states or logits."""
        hidden = inputs if self.embed_tokens is None else self.embed_tokens(inputs)
        positions = torch.arange(hidden.shape[1], device=hidden.device).unsqueeze(0)
        rotations = self.rotary_emb(hidden, position_ids=positions)
        for block in self.layers:
            hidden = block(
                hidden, attention_mask=None, position_ids=positions, position_embeddings=rotations
            )
        if self.norm is not None:
            hidden = self.norm(hidden)
        return hidden if self.lm_head is None else self.lm_head(hidden)


def decoder_stages(decoder: Any, count: int) -> Stages:
    """Cut `decoder` (a ``…ForCausalLM`` without attention mask) into `count` stages.

    Raises:
        Unsupported: there are fewer blocks than stages.
    """
    blocks = len(decoder.model.layers)
    if blocks < count:
        raise Unsupported(
            f"model.layers={blocks} cannot be cut into {count} stages; use fewer ranks, or a "
            "distributed.pipeline_schedule with one stage per rank"
        )
    ends = [-(-blocks * stage // count) for stage in range(count + 1)]
    config = decoder.config
    return Stages(
        modules=tuple(DecoderStage(decoder, range(start, end)) for start, end in pairwise(ends)),
        between=(config.max_position_embeddings, config.hidden_size),
        loss=token_loss,
    )
