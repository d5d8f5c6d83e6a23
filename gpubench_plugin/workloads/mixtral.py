"""Mixtral of Jiang et al. 2024 (https://arxiv.org/abs/2401.04088), from transformers."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from gpubench_plugin.config.sections import PositiveInt
from gpubench_plugin.workloads._mixture import MixtureOfExperts, MixtureSection


class MixtralSection(MixtureSection):
    """Sizes, by default a quarter of Mixtral 8×7B's width and 12 of its 32 layers."""

    intermediate_size: PositiveInt = Field(3584, description="Hidden width of an expert")
    experts: PositiveInt = Field(8, description="Experts per layer")
    experts_per_token: PositiveInt = Field(2, description="Experts per token")


class Mixtral(MixtureOfExperts[MixtralSection]):
    """Mixtral language model: mixture of few wide experts, routing weights normalized."""

    Section = MixtralSection
    configuration = "MixtralConfig"
    architecture = "MixtralForCausalLM"

    def hyperparameters(self) -> dict[str, Any]:
        """Arguments of an MoE model under Mixtral's names."""
        return {**super().hyperparameters(), "num_local_experts": self.section.experts}
