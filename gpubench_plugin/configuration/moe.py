"""The keys of mixture-of-experts layers."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gpubench_plugin.configuration.section import PositiveFloat, PositiveInt, Section


class MoeSection(Section):
    """A layer of experts, of which each token visits a few."""

    experts: PositiveInt = Field(default=8, description="Experts over all ranks")
    top_k: PositiveInt = Field(default=2, description="Experts that each token visits")
    width: PositiveInt = Field(default=64, description="Features of a token")
    hidden: PositiveInt = Field(default=128, description="Features inside an expert")
    balancing: Literal["none", "aux-loss", "z-loss"] = Field(
        default="aux-loss", description="What keeps the router from preferring few experts"
    )
    balancing_weight: PositiveFloat = Field(default=0.01, description="Weight of that loss")
    capacity_factor: PositiveFloat | None = Field(
        default=None,
        description="Tokens an expert takes, relative to an even share; null: all, none is dropped",
    )
    dispatcher: Literal["local", "all-gather", "all-to-all", "flex"] = Field(
        default="local", description="How tokens travel to the ranks of their experts"
    )
    expert_kind: Literal["sequential", "grouped", "te-grouped"] = Field(
        default="sequential", description="How a rank computes its experts"
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
        default=False, description="Replay the router and the experts of fixed shape as CUDA graphs"
    )
