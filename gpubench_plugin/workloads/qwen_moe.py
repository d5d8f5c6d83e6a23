"""Qwen3-MoE of Yang et al. 2025 (https://arxiv.org/abs/2505.09388), from transformers."""

from __future__ import annotations

from typing import Any

from gpubench_plugin.config.sections import PositiveInt
from gpubench_plugin.workloads._mixture import MixtureOfExperts, MixtureSection


class QwenMoeSection(MixtureSection):
    """Sizes, by default half of Qwen3-30B-A3B's width and experts, a quarter of its layers."""

    intermediate_size: PositiveInt = 512
    """Hidden width of an expert"""
    experts: PositiveInt = 64
    """Experts per layer"""
    experts_per_token: PositiveInt = 8
    """Experts per token"""


class QwenMoe(MixtureOfExperts[QwenMoeSection]):
    """Qwen3-MoE language model: mixture of many narrow experts, queries and keys normalized."""

    Section = QwenMoeSection
    configuration = "Qwen3MoeConfig"
    architecture = "Qwen3MoeForCausalLM"

    def hyperparameters(self) -> dict[str, Any]:
        """Arguments of an MoE model under Qwen's names."""
        section = self.section
        return {
            **super().hyperparameters(),
            "num_experts": section.experts,
            "moe_intermediate_size": section.intermediate_size,
            "norm_topk_prob": True,
            "head_dim": section.width // section.heads,
        }
