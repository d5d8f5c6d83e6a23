"""The keys of mixture-of-experts layers."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from gpubench_plugin.config.section import PositiveFloat, PositiveInt, Section


class MoeSection(Section):
    """A layer of experts, of which each token visits a few."""

    experts: PositiveInt = Field(default=8, description="Experts over all ranks")
    top_k: PositiveInt = Field(default=2, description="Experts that each token visits")
    width: PositiveInt = Field(default=64, description="Features of a token")
    hidden: PositiveInt = Field(default=128, description="Features inside an expert")
    tokens: PositiveInt = Field(default=256, description="Tokens of a rank in one call")
    balancing: Literal["none", "aux-loss", "z-loss"] = Field(
        default="aux-loss", description="What keeps the router from preferring few experts"
    )
    balancing_weight: PositiveFloat = Field(default=0.01, description="Weight of that loss")
    capacity_factor: PositiveFloat | None = Field(
        default=None,
        description="Tokens an expert takes, relative to an even share; null: all, none is dropped",
    )
    dispatcher: Literal["auto", "local", "all-gather", "all-to-all", "flex"] = Field(
        default="auto",
        description="How tokens travel to their experts; auto: local, or all-to-all between ranks",
    )
    expert_kind: Literal["sequential", "grouped", "te-grouped"] = Field(
        default="grouped", description="How a rank computes its experts"
    )
    expert_parallel: PositiveInt | None = Field(
        default=None, description="Ranks that share the experts; null: as many as there are"
    )
    tensor_parallel: PositiveInt = Field(
        default=1, description="Ranks that share each expert's hidden features"
    )
    rank_sorter: str = Field(default="none", description="The order in which ranks take experts")
    device_initialisation: bool = Field(
        default=False, description="Draw the weights on the device instead of on the CPU"
    )
    pinned_cache: PositiveInt | None = Field(
        default=None,
        description="Experts kept on the device, the others in pinned memory; null: all on it",
    )
    graph_capture: bool = Field(
        default=False, description="Replay the router, whose shapes are fixed, as a CUDA graph"
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        """What the keys ask of each other."""
        if self.top_k > self.experts:
            raise ValueError(
                f"top_k={self.top_k} of experts={self.experts}: a token cannot visit more experts "
                f"than there are; allowed: top_k from 1 to {self.experts}"
            )
        if self.hidden % self.tensor_parallel:
            raise ValueError(
                f"tensor_parallel={self.tensor_parallel} of hidden={self.hidden}: ranks cannot "
                "take equally many features; allowed: a tensor_parallel that divides hidden"
            )
        return self
