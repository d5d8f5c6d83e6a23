"""What language models with mixtures of experts share: their sizes, experts and router's loss.

transformers computes all experts of a layer by one grouped matrix product, which autocast does not
know: it would be in fp32 whatever the precision. It gets the weights in the type of autocast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

import torch
from pydantic import Field, model_validator

from gpubench_plugin.config import PositiveFloat, PositiveInt
from gpubench_plugin.workloads._language import CausalLanguageModel, RotarySection, token_loss
from gpubench_plugin.workloads._transformers import from_library

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn

    from gpubench_plugin.workloads.base import Batch

GROUPED = "gpubench_grouped_mm"
"""The grouped product of transformers, in the type of autocast."""

WITHOUT_DATA = "gpubench_grouped_mm_without_data"
"""The same in bf16: of no other type does torch know the result's shape without the data."""


class MixtureSection(RotarySection):
    """The sizes of a transformer whose feed-forward layers are experts."""

    width: PositiveInt = Field(1024, description="Features of a token")
    heads: PositiveInt = Field(16, description="Heads of attention, which share the width")
    experts: PositiveInt = Field(description="Experts in each layer")
    experts_per_token: PositiveInt = Field(description="Of them, those that a token visits")
    experts_implementation: Literal["eager", "grouped"] = Field(
        "grouped", description="eager: one expert after the other; grouped: one matrix product"
    )
    router_loss_weight: PositiveFloat = Field(
        0.001, description="Of the loss that keeps the router from preferring few experts"
    )

    @model_validator(mode="after")
    def _enough_experts(self) -> Self:
        if self.experts_per_token > self.experts:
            raise ValueError(
                f"experts_per_token {self.experts_per_token} of only {self.experts} experts"
            )
        return self


S = TypeVar("S", bound=MixtureSection)


class MixtureOfExperts(CausalLanguageModel[S]):
    """A causal language model, each of whose tokens visits a few experts per layer.

    In training, the router's load-balancing loss is added to the cross entropy: experts × the sum
    over them of their share of the tokens times their mean probability, over all layers, times
    ``model.router_loss_weight``. Each rank has that of its own batch.

    Source: Fedus et al. 2022, Switch Transformers, https://arxiv.org/abs/2101.03961, equations 4–6
    """

    def hyperparameters(self) -> dict[str, Any]:
        """Those of every language model, and the experts."""
        section = self.section
        return {
            **super().hyperparameters(),
            "num_key_value_heads": section.key_value_heads,
            "num_experts_per_tok": section.experts_per_token,
            "experts_implementation": (
                self._grouped if section.experts_implementation == "grouped" else "eager"
            ),
        }

    _grouped = GROUPED

    def build(self) -> nn.Module:
        """The model, whose mixtures say why ranks with a part of the batch each train otherwise."""
        (functions,) = from_library(
            self.section.name, "transformers.integrations.moe", "ALL_EXPERTS_FUNCTIONS"
        )
        functions.register(GROUPED, _in_type(None, functions["grouped_mm"]))
        functions.register(WITHOUT_DATA, _in_type(torch.bfloat16, functions["grouped_mm"]))
        module: Any = super().build()
        for layer in module.model.layers:
            layer.mlp.differs_per_rank = "a router balances the load of each rank's own batch"
        built: nn.Module = module
        return built

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        """The mean cross entropy, in training with the weighted loss of the router; in fp32."""
        # The router's loss has no matrix product, and transformers 5.17 looks at data for it.
        if not module.training or self._grouped == WITHOUT_DATA:
            return super().loss(module, batch)
        output = module(input_ids=batch.inputs, output_router_logits=True)
        router: Tensor = output.aux_loss.float()
        prediction = token_loss(output.logits, batch.targets)
        return prediction + self.section.router_loss_weight * router

    def without_data(self) -> Self:
        """Experts as one matrix product: one after the other needs to know who visits which."""
        made = super().without_data()
        made.section = made.section.model_copy(update={"experts_implementation": "grouped"})
        made._grouped = WITHOUT_DATA
        return made


def _in_type(dtype: torch.dtype | None, grouped: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A way to compute experts: `grouped`, their weights in `dtype`, None for that of autocast."""

    def computed(experts: Any, hidden: Tensor, indices: Tensor, weights: Tensor) -> Tensor:
        kind = hidden.device.type
        chosen = dtype
        if chosen is None and torch.is_autocast_enabled(kind):
            chosen = torch.get_autocast_dtype(kind)
        cast = experts if chosen is None else _Cast(experts, chosen)
        return grouped(cast, hidden, indices, weights)

    return computed


class _Cast:
    """A module's attributes, its floating tensors in another type."""

    def __init__(self, module: Any, dtype: torch.dtype):
        self._module = module
        self._dtype = dtype

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._module, name)
        is_weight = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value.to(self._dtype) if is_weight else value
