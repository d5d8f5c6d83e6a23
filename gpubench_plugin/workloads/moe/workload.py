"""Small image classifier with custom MoE blocks."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from gpubench_plugin.config.sections import MoeSection, PositiveFloat, PositiveInt, RoutedSection
from gpubench_plugin.workloads._images import ImageClassifier, SmallImageSection
from gpubench_plugin.workloads.base import Batch
from gpubench_plugin.workloads.moe.dispatchers import Local
from gpubench_plugin.workloads.moe.experts import KINDS, draw_router, weights
from gpubench_plugin.workloads.moe.groups import Placement
from gpubench_plugin.workloads.moe.layer import MoELayer
from gpubench_plugin.workloads.moe.routing import Router


class MoEModelSection(RoutedSection, SmallImageSection):
    """Sizes of the blocks; every rank holds all experts."""

    blocks: PositiveInt = 2
    """Mixture-of-experts layers"""
    expert_kind: Literal["sequential", "grouped"] = "grouped"
    """Expert implementation"""
    balancing: Literal["none", "aux-loss", "z-loss"] = "z-loss"
    """Load balancing loss of the router"""
    balancing_weight: PositiveFloat = 0.001
    """Weight of the balancing loss"""


class MoE(ImageClassifier[MoEModelSection]):
    """Mixture-of-experts classifier: rows of pixels are the tokens of residual MoE blocks.

    The z-loss is a mean over tokens, so that data parallel ranks have the gradients of one process.
    With the aux-loss each rank balances its own tokens, which is recorded.
    """

    Section = MoEModelSection
    channels = 1

    def __init__(self, section: MoEModelSection):
        super().__init__(section)
        self.tokens_per_sample = section.image_size

    def build(self) -> nn.Module:
        """The model; experts are initialised by hashing torch's seed, not from its generator."""
        return _Classifier(self.section)

    def forward(self, module: nn.Module, batch: Batch) -> Tensor:
        """Logits of the batch's images, N×classes."""
        logits, _ = module(batch.inputs)
        assert isinstance(logits, torch.Tensor)
        return logits

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        """Mean cross entropy in fp32 plus the blocks' balancing losses."""
        logits, balancing = module(batch.inputs)
        loss: Tensor = cross_entropy(logits.float(), batch.targets) + balancing
        return loss


class _Classifier(nn.Module):
    def __init__(self, section: MoEModelSection):
        super().__init__()
        layer = MoeSection(**section.model_dump(include=set(MoeSection.model_fields)))
        self.embedding = nn.Linear(section.image_size, section.width)
        # 0.02: the deviation of GPT-2's and BERT's embeddings.
        self.position = nn.Parameter(torch.randn(section.image_size, section.width) * 0.02)
        self.blocks = nn.ModuleList(
            _Block(layer, section.expert_kind, number) for number in range(section.blocks)
        )
        self.norm = nn.LayerNorm(section.width)
        self.head = nn.Linear(section.width, section.classes)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Logits, and the summed balancing loss."""
        tokens = self.embedding(images.squeeze(1)) + self.position
        balancing = tokens.new_zeros((), dtype=torch.float32)
        for block in self.blocks:
            tokens, loss = block(tokens)
            balancing = balancing + loss
        return self.head(self.norm(tokens).mean(dim=1)), balancing


class _Block(nn.Module):
    def __init__(self, section: MoeSection, kind: str, number: int):
        super().__init__()
        seed, device = torch.initial_seed(), str(torch.get_default_device())
        all_experts = tuple(range(section.experts))
        self.norm = nn.LayerNorm(section.width)
        self.moe = MoELayer(
            router=Router(section, draw_router(section, seed=seed, layer=number, device=device)),
            dispatcher=Local(Placement(all_experts)),
            experts=KINDS[kind](
                *weights(section, all_experts, seed=seed, layer=number, device=device)
            ),
        )

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        output, balancing = self.moe(self.norm(tokens).flatten(0, 1))
        return tokens + output.view_as(tokens), balancing
