"""The layer: a router, a dispatcher's way to the experts, the experts, and the way back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from torch import nn

from gpubench_plugin.workloads.moe.collectives import copied_to, summed_over
from gpubench_plugin.workloads.moe.dispatchers.base import COMBINE, DISPATCH

if TYPE_CHECKING:
    from torch import Tensor
    from torch import distributed as dist

    from gpubench_plugin.workloads.moe.dispatchers.base import Dispatcher, Travel
    from gpubench_plugin.workloads.moe.routing import Routing

ROUTER: Final = "router"
EXPERTS: Final = "experts"
PHASES: Final = (*DISPATCH, EXPERTS, *COMBINE)
"""The phases that follow the router, in their order; named as in Megatron-Core."""

Stage = tuple[str, Callable[[Any], Any]]


class MoELayer(nn.Module):
    """A mixture of experts: ``output, balancing_loss = layer(tokens)``.

    `router` maps tokens to a routing, `experts` rows and their counts to rows. On the ranks of
    `tensor` the experts are slices, whose outputs are summed.
    """

    def __init__(
        self,
        *,
        router: Callable[[Tensor], Routing],
        dispatcher: Dispatcher[Any],
        experts: Callable[[Tensor, Tensor], Tensor],
        tensor: dist.ProcessGroup | None = None,
    ):
        super().__init__()
        self.router = router  # a module's parameters are the layer's
        self.dispatcher = dispatcher
        self.experts = experts
        self._tensor = tensor

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """The output (tokens × width) for `tokens`, and the weighted loss that balances experts."""
        routing = self.router(tokens)
        travel = self.dispatcher.dispatch_preprocess(tokens, routing)
        travel = self.dispatcher.dispatch(travel)
        travel = self.dispatcher.dispatch_postprocess(travel)
        travel = self._computed(travel)
        travel = self.dispatcher.combine_preprocess(travel)
        travel = self.dispatcher.combine(travel)
        return self.dispatcher.combine_postprocess(travel), routing.balancing_loss

    def stages(self, tokens: Tensor) -> list[Stage]:
        """The router and the phases, each a function of what the one before gave.

        The first is given anything. They are what :meth:`forward` runs, one by one.
        """
        way = self.dispatcher
        first: Stage = (DISPATCH[0], partial(way.dispatch_preprocess, tokens))
        rest = [(name, getattr(way, name)) for name in (*DISPATCH[1:], *COMBINE)]
        rest.insert(len(DISPATCH) - 1, (EXPERTS, self._computed))
        return [(ROUTER, lambda _: self.router(tokens)), first, *rest]

    def _computed(self, travel: Travel) -> Travel:
        rows = self.experts(copied_to(travel.rows, self._tensor), travel.counts)
        return replace(travel, rows=summed_over(rows, self._tensor))
