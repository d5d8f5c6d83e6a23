"""Llama of Touvron et al. 2023 (https://arxiv.org/abs/2302.13971), from transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field

from gpubench_plugin.config import PositiveInt
from gpubench_plugin.errors import Unsupported
from gpubench_plugin.workloads._decoder import decoder_stages
from gpubench_plugin.workloads._language import CausalLanguageModel, RotarySection

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import nn

    from gpubench_plugin.workloads.base import Stages


class LlamaSection(RotarySection):
    """The sizes of a Llama; the defaults have 1.1 billion parameters."""

    layers: PositiveInt = Field(22, description="Blocks of attention and feed-forward layers")
    width: PositiveInt = Field(2048, description="Features of a token")
    heads: PositiveInt = Field(32, description="Heads of attention, which share the width")
    intermediate_size: PositiveInt = Field(5632, description="Features inside a feed-forward layer")
    vocabulary: PositiveInt = Field(32000, description="Different tokens")
    sequence_length: PositiveInt = Field(2048, description="Tokens of a sample")


class Llama(CausalLanguageModel[LlamaSection]):
    """Rotary positions, RMS norms, gated feed-forward layers, keys and values shared by heads."""

    Section = LlamaSection
    configuration = "LlamaConfig"
    architecture = "LlamaForCausalLM"

    def hyperparameters(self) -> dict[str, Any]:
        """Those of every language model, and the number of heads of keys and values."""
        return {
            **super().hyperparameters(),
            "num_key_value_heads": self.section.key_value_heads,
        }

    def tensor_plan(self, ranks: int) -> Mapping[str, str]:
        """Heads, features inside the feed-forward layers, and the vocabulary, each shared evenly.

        Source: Shoeybi et al., Megatron-LM (2019), section 3, https://arxiv.org/abs/1909.08053
        """
        for key in ("heads", "key_value_heads", "intermediate_size", "vocabulary"):
            if (size := getattr(self.section, key)) % ranks:
                raise Unsupported(f"model.{key}={size} does not divide among {ranks} ranks")
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
        """The blocks in `count` equal parts, longer ones first; embedding and head at the ends."""
        return decoder_stages(module, count)
