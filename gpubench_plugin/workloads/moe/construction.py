"""Construction of one rank's MoE layer from the configuration."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch import distributed as dist

from gpubench_plugin.config.sections import MoeSection
from gpubench_plugin.core.errors import Unsupported
from gpubench_plugin.precision.base import Precision
from gpubench_plugin.workloads.moe import rank_sorters
from gpubench_plugin.workloads.moe.dispatchers import dispatcher_for
from gpubench_plugin.workloads.moe.experts import (
    KINDS,
    Sequential,
    draw_router,
    offload,
    uniform,
    weights,
)
from gpubench_plugin.workloads.moe.groups import ParallelGroups, Placement
from gpubench_plugin.workloads.moe.layer import MoELayer, capture_router
from gpubench_plugin.workloads.moe.routing import Router

# Far above the streams of weights, which count experts.
_TOKENS_STREAM = 2**31
_COTANGENT_STREAM = 2**31 + 2**30


@dataclass(eq=False, repr=False)
class Construction:
    """Builds tokens, placement and layer of one rank from `seed`.

    Raises:
        Unsupported: experts, cache, graph capture or initialisation are not supported on this
            device, or not in this combination.
        UsageProblem: there is no such rank sorter.
    """

    section: MoeSection
    _: KW_ONLY
    seed: int
    groups: ParallelGroups
    precision: Precision
    device: torch.device

    def __post_init__(self) -> None:
        section, groups, device = self.section, self.groups, self.device
        self.kind = kind = KINDS[section.expert_kind]
        if reason := kind.unsupported(section, device, self.precision.compute_dtype):
            raise Unsupported(f"moe.expert_kind={section.expert_kind}: {reason}")
        if section.pinned_cache and not issubclass(kind, Sequential):
            raise Unsupported(
                f"moe.pinned_cache: not supported by moe.expert_kind={section.expert_kind}; "
                "allowed: sequential, grouped"
            )
        if section.device_initialisation and device.type == "cpu":
            raise Unsupported(
                "moe.device_initialisation: the device is the CPU, where weights are drawn "
                "anyway; use --device=cuda, or set false"
            )
        self._sorter = rank_sorters.build_sorter(section.rank_sorter, groups)
        # Refuses bad combinations before the ranks communicate.
        dispatcher_for(section.dispatcher, self._placement_in(range(section.experts)), groups)

    @property
    def weights_device(self) -> str:
        """Device on which weights are drawn."""
        return str(self.device) if self.section.device_initialisation else "cpu"

    def tokens(self, index: int) -> Tensor:
        """Tokens of the rank with `index` on the token axis."""
        return self._inputs(_TOKENS_STREAM + index)

    def cotangent(self, index: int) -> Tensor:
        """Cotangent of that rank's output."""
        return self._inputs(_COTANGENT_STREAM + index)

    def router(self) -> Router:
        """The router, equal on every rank."""
        weight = draw_router(self.section, seed=self.seed, device=self.weights_device)
        module = self.precision.convert_module(Router(self.section, weight))
        return cast("Router", module.to(self.device))

    def weights(self, experts: tuple[int, ...], *, device: str) -> tuple[Tensor, Tensor]:
        """This rank's slices of `experts`, drawn on the given device."""
        part = (self.groups.tensor.index, self.groups.tensor.size)
        return weights(self.section, experts, seed=self.seed, device=device, tensor_part=part)

    def all_weights(self) -> tuple[Tensor, Tensor]:
        """Weights of all experts in order, drawn on the CPU."""
        return weights(self.section, range(self.section.experts), seed=self.seed)

    def placement(self) -> Placement:
        """Placement of experts by the rank sorter; must be called on every rank."""
        name = self.section.rank_sorter
        loads = [0.0] * self.section.experts if name == "none" else self._loads()
        return self._placement_in(self._sorter(loads, self.groups.expert.size))

    def layer(self, placement: Placement) -> MoELayer:
        """This rank's layer, on the device."""
        section = self.section
        built = self.kind(*self.weights(placement.own_experts, device=self.weights_device))
        experts: Any = self.precision.convert_module(built).to(self.device)
        if section.pinned_cache:
            experts = offload(experts, size=section.pinned_cache)
        router: nn.Module = self.router()
        if section.graph_capture:
            router = capture_router(self.router(), self.tokens(self.groups.tokens.index))
        return MoELayer(
            router=router,
            dispatcher=dispatcher_for(section.dispatcher, placement, self.groups),
            experts=experts,
            tensor=self.groups.tensor.group,
        )

    def _placement_in(self, order: Iterable[int]) -> Placement:
        expert = self.groups.expert
        return Placement(tuple(order), ranks=expert.size, rank=expert.index)

    def _inputs(self, stream: int) -> Tensor:
        """Tokens of unit variance, drawn on the CPU."""
        shape = (self.section.tokens, self.section.width)
        values = uniform(shape, bound=3**0.5, seed=self.seed, stream=stream, device="cpu")
        return self.precision.convert_batch(values).to(self.device)

    def _loads(self) -> list[float]:
        """Token count per expert over all ranks."""
        with torch.no_grad():
            counts = self.router()(self.tokens(self.groups.tokens.index)).counts
        if self.groups.tokens.group is not None:
            dist.all_reduce(counts, group=self.groups.tokens.group)
        return [float(load) for load in counts.tolist()]
