"""A decoder of transformers with rotary positions, cut into the stages of a pipeline."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from gpubench_plugin.errors import Unsupported
from gpubench_plugin.workloads.base import Stages

if TYPE_CHECKING:
    from torch import Tensor


class DecoderStage(nn.Module):
    """Some blocks of a decoder; the first stage embeds tokens, the last one computes logits."""

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
        """From tokens, N×L, or hidden states, N×L×width, to hidden states or logits."""
        hidden = inputs if self.embed_tokens is None else self.embed_tokens(inputs)
        positions = torch.arange(hidden.shape[1], device=hidden.device).unsqueeze(0)
        rotations = self.rotary_emb(hidden, position_ids=positions)
        for block in self.layers:
            hidden = block(
                hidden,
                attention_mask=None,
                position_ids=positions,
                position_embeddings=rotations,
            )
        if self.norm is not None:
            hidden = self.norm(hidden)
        return hidden if self.lm_head is None else self.lm_head(hidden)


def decoder_stages(decoder: Any, count: int) -> Stages:
    """`decoder` (a ``…ForCausalLM`` without a mask of attention) in `count` stages.

    Raises:
        Unsupported: there are fewer blocks than stages.
    """
    blocks = len(decoder.model.layers)
    if blocks < count:
        raise Unsupported(
            f"model.layers={blocks} cannot be cut into {count} stages; take fewer ranks, or a "
            "distributed.pipeline_schedule with one stage per rank"
        )
    ends = [-(-blocks * stage // count) for stage in range(count + 1)]
    config = decoder.config
    return Stages(
        modules=tuple(DecoderStage(decoder, range(start, end)) for start, end in pairwise(ends)),
        between=(config.max_position_embeddings, config.hidden_size),
        loss=token_loss,
    )


def token_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean cross entropy of `logits`, N×L×vocabulary, with all `targets`, N×L, in fp32."""
    return cross_entropy(logits.float().flatten(0, 1), targets.flatten())
