"""BERT of Devlin et al. 2018 (https://arxiv.org/abs/1810.04805), from transformers."""

from __future__ import annotations

from typing import Any

import torch

from gpubench_plugin.config.sections import PositiveInt
from gpubench_plugin.workloads._language import LanguageModel, LanguageSection
from gpubench_plugin.workloads.base import Batch

MASKED = 0.15
"""Share of masked tokens, as in the paper."""

NO_TARGET = -100
"""Target that cross entropy ignores by default."""


class BertSection(LanguageSection):
    """Sizes of a BERT, by default BERT-large."""

    layers: PositiveInt = 24
    """Transformer blocks"""
    width: PositiveInt = 1024
    """Model width"""
    heads: PositiveInt = 16
    """Attention heads"""
    intermediate_size: PositiveInt = 4096
    """Width of the feed-forward layers"""
    vocabulary: PositiveInt = 30522
    """Vocabulary size; the last id is the mask"""
    sequence_length: PositiveInt = 512
    """Sequence length"""


class Bert(LanguageModel[BertSection]):
    """BERT language model: bidirectional attention, trained on masked tokens."""

    Section = BertSection
    configuration = "BertConfig"
    architecture = "BertForMaskedLM"

    def hyperparameters(self) -> dict[str, Any]:
        """Arguments of a language model without BERT's default dropout."""
        return {
            **super().hyperparameters(),
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
            "pad_token_id": None,
        }

    def synthetic_batch(
        self, size: int, *, device: torch.device, generator: torch.Generator | None = None
    ) -> Batch:
        """Random tokens, N×L, with 15% per row masked as targets.

        All are replaced by the mask; the paper keeps or changes a fifth, at the same cost.
        """
        section = self.section
        shape = (size, section.sequence_length)
        mask = section.vocabulary - 1
        tokens = torch.randint(max(mask, 1), shape, device=device, generator=generator)
        order = torch.rand(shape, device=device, generator=generator).argsort(dim=1)
        is_masked = order < max(1, round(MASKED * section.sequence_length))
        return Batch(tokens.masked_fill(is_masked, mask), tokens.masked_fill(~is_masked, NO_TARGET))
