"""A mixture-of-experts layer: a router, dispatch to the experts, the experts, and the way back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import nn

from gpubench_plugin.errors import Unsupported
from gpubench_plugin.workloads.moe.collectives import copied_to, summed_over
from gpubench_plugin.workloads.moe.dispatchers.base import COMBINE, DISPATCH
from gpubench_plugin.workloads.moe.routing import Router, Routing

if TYPE_CHECKING:
    from torch import Tensor
    from torch import distributed as dist

    from gpubench_plugin.workloads.moe.dispatchers.base import Dispatcher, Travel


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


def captured(router: Router, tokens: Tensor) -> nn.Module:
    """`router` as CUDA graphs of its forward and backward pass, for tokens shaped as `tokens`.

    The graphs are replayed in place of launching the router. It is the part of the layer whose
    shapes are fixed: what follows depends on where tokens go, and asks the host for lengths.

    Raises:
        Unsupported: the device is no CUDA device.
    """
    if tokens.device.type != "cuda":
        raise Unsupported(
            f"moe.graph_capture: CUDA graphs need a CUDA device, not {tokens.device.type}; "
            "use --device=cuda, or false"
        )
    sample = tokens.detach().requires_grad_()
    plain = torch.cuda.make_graphed_callables(_Plain(router), (sample,))
    return Replayed(plain)


class _Plain(nn.Module):
    """A router that gives tensors only, as capturing asks for."""

    def __init__(self, router: Router):
        super().__init__()
        self.router = router

    def forward(self, tokens: Tensor) -> tuple[Tensor, ...]:
        routing = self.router(tokens)
        return tuple(part for part in routing if part is not None)


class Replayed(nn.Module):
    """A captured router that gives a routing."""

    def __init__(self, plain: Callable[..., Any]):
        super().__init__()
        self._plain = plain

    def forward(self, tokens: Tensor) -> Routing:
        """The routing of `tokens`, in buffers that the next call overwrites."""
        return Routing(*self._plain(tokens))
