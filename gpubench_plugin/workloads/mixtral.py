"""Mixtral of Jiang et al. 2024 (https://arxiv.org/abs/2401.04088), from transformers."""

from __future__ import annotations

from typing import Any

from gpubench_plugin.config.sections import PositiveInt
from gpubench_plugin.workloads._mixture import MixtureOfExperts, MixtureSection


class MixtralSection(MixtureSection):
    """Sizes, by default a quarter of Mixtral 8×7B's width and 12 of its 32 layers."""

    intermediate_size: PositiveInt = 3584
    """Hidden width of an expert"""
    experts: PositiveInt = 8
    """Experts per layer"""
    experts_per_token: PositiveInt = 2
    """Experts per token"""


class Mixtral(MixtureOfExperts[MixtralSection]):
    """Mixtral language model: mixture of few wide experts, routing weights normalized."""

    Section = MixtralSection
    configuration = "MixtralConfig"
    architecture = "MixtralForCausalLM"

    def hyperparameters(self) -> dict[str, Any]:
        """Arguments of an MoE model under Mixtral's names."""
        return {**super().hyperparameters(), "num_local_experts": self.section.experts}
