"""Base of MoE language models: sizes, experts, router loss.

transformers computes all experts of a layer by one grouped matrix product, which autocast does not
cover. Its weights are cast to the autocast dtype here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Self, TypeVar

import torch
from pydantic import model_validator
from torch import Tensor, nn

from gpubench_plugin.config.sections import PositiveFloat, PositiveInt
from gpubench_plugin.workloads._language import CausalLanguageModel, RotarySection, token_loss
from gpubench_plugin.workloads._transformers import from_library
from gpubench_plugin.workloads.base import Batch

GROUPED = "gpubench_grouped_mm"
"""transformers' grouped product in the autocast dtype."""

WITHOUT_DATA = "gpubench_grouped_mm_without_data"
"""The same in bf16, the only dtype for which torch infers the shape on fake tensors."""


class MixtureSection(RotarySection):
    """Sizes of a transformer with MoE feed-forward layers."""

    width: PositiveInt = 1024
    """Model width"""
    heads: PositiveInt = 16
    """Attention heads"""
    experts: PositiveInt
    """Experts per layer"""
    experts_per_token: PositiveInt
    """Experts per token"""
    experts_implementation: Literal["eager", "grouped"] = "grouped"
    """eager: one expert at a time; grouped: one matrix product"""
    router_loss_weight: PositiveFloat = 0.001
    """Weight of the router's load balancing loss"""

    @model_validator(mode="after")
    def _check_experts(self) -> Self:
        if self.experts_per_token > self.experts:
            raise ValueError(
                f"experts_per_token {self.experts_per_token} exceeds experts {self.experts}"
            )
        return self


S = TypeVar("S", bound=MixtureSection)


class MixtureOfExperts(CausalLanguageModel[S]):
    """A causal language model with several experts per token and layer.

    In training, the router's load-balancing loss is added to the cross entropy: experts × the sum
    over them of their share of the tokens times their mean probability, over all layers, times
    ``model.router_loss_weight``. It is that of each rank's own batch.

    Source: Fedus et al. 2022, Switch Transformers, https://arxiv.org/abs/2101.03961, equations 4–6
    """

    def hyperparameters(self) -> dict[str, Any]:
        """Arguments of a language model, and of its experts."""
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
        """The model; its MoE layers state why training differs when a batch is split over ranks."""
        (functions,) = from_library(
            self.section.name, "transformers.integrations.moe", "ALL_EXPERTS_FUNCTIONS"
        )
        functions.register(GROUPED, _casting(None, functions["grouped_mm"]))
        functions.register(WITHOUT_DATA, _casting(torch.bfloat16, functions["grouped_mm"]))
        module: Any = super().build()
        for layer in module.model.layers:
            layer.mlp.differs_per_rank = "the router balances the load of each rank's own batch"
        # Not before: transformers reads the file of the class to learn what the model can do.
        module.__class__ = _with_router_loss(type(module), self.section)
        built: nn.Module = module
        return built

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        """Mean cross entropy in fp32, in training with the weighted router loss."""
        # The router's loss has no matrix product.
        if not module.training or self._grouped == WITHOUT_DATA:
            return super().loss(module, batch)
        output = module(input_ids=batch.inputs, output_router_logits=True)
        router: Tensor = output.aux_loss.float()
        return token_loss(output.logits, batch.targets) + self.section.router_loss_weight * router

    def for_fake_tensors(self) -> Self:
        """Use grouped experts: sequential ones need the routing, which fake tensors lack."""
        clone = super().for_fake_tensors()
        clone.section = clone.section.model_copy(update={"experts_implementation": "grouped"})
        clone._grouped = WITHOUT_DATA
        return clone


def router_loss(layers: Sequence[Tensor], *, experts_per_token: int) -> Tensor:
    """Load-balancing loss in fp32 of each layer's router logits, tokens × experts, unweighted.

    It equals transformers' without padding, but the host waits for nothing, whatever the version:
    that of transformers 5.17 counts by ``bincount``, whose length the host reads.
    """
    tokens, experts = layers[0].shape
    # On the CPU histc takes no integers; on CUDA it is deterministic for integers only.
    dtype = torch.float32 if layers[0].device.type in ("cpu", "mps") else torch.int32
    probabilities = [logits.softmax(dim=-1) for logits in layers]
    none = torch.zeros(experts, device=layers[0].device)
    masses = sum((part.float().sum(dim=0) for part in probabilities), start=none)
    chosen = [part.topk(experts_per_token).indices.to(dtype) for part in probabilities]
    visits = sum(
        (torch.histc(part, bins=experts, min=0, max=experts) for part in chosen), start=none
    )
    rows = tokens * len(layers)
    return experts * (visits / rows * (masses / rows)).sum()


def _with_router_loss(architecture: Any, section: MixtureSection) -> Any:
    """The class of a model in transformers, with `router_loss` for its own."""
    (output_of,) = from_library(
        section.name, "transformers.modeling_outputs", "MoeCausalLMOutputWithPast"
    )

    class WithRouterLoss(architecture):  # type: ignore[misc] # imported when it is needed
        """A causal language model whose output has ``aux_loss`` without a wait for the device."""

        def forward(
            self, input_ids: Any = None, *, output_router_logits: bool = False, **kwargs: Any
        ) -> Any:
            if not output_router_logits:
                return super().forward(input_ids=input_ids, **kwargs)
            output = self.model(input_ids=input_ids, output_router_logits=True, **kwargs)
            return output_of(
                aux_loss=router_loss(
                    output.router_logits, experts_per_token=section.experts_per_token
                ),
                logits=self.lm_head(output.last_hidden_state),
            )

    return WithRouterLoss


def _casting(dtype: torch.dtype | None, grouped: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Wrap `grouped` to cast expert weights to `dtype` (None: autocast's)."""

    def cast_grouped(experts: Any, hidden: Tensor, indices: Tensor, weights: Tensor) -> Tensor:
        kind = hidden.device.type
        target_dtype = dtype
        if target_dtype is None and torch.is_autocast_enabled(kind):
            target_dtype = torch.get_autocast_dtype(kind)
        cast = experts if target_dtype is None else _CastView(experts, target_dtype)
        return grouped(cast, hidden, indices, weights)

    return cast_grouped


class _CastView:
    """View of a module's attributes with floating-point tensors cast to another dtype."""

    def __init__(self, module: Any, dtype: torch.dtype):
        self._module = module
        self._dtype = dtype

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._module, name)
        is_weight = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value.to(self._dtype) if is_weight else value
