"""MoE layer: router, dispatch, experts, combine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch import distributed as dist

from gpubench_plugin.core.errors import Unsupported
from gpubench_plugin.workloads.moe.dispatchers import (
    COMBINE,
    DISPATCH,
    Dispatcher,
    DispatchState,
    all_reduce_sum,
    copy_to_group,
)
from gpubench_plugin.workloads.moe.routing import Router, Routing

ROUTER: Final = "router"
EXPERTS: Final = "experts"
PHASES: Final = (*DISPATCH, EXPERTS, *COMBINE)
"""Phases after the router in order, named as in Megatron-Core."""

Stage = tuple[str, Callable[[Any], Any]]


class MoELayer(nn.Module):
    """A mixture-of-experts layer: ``output, balancing_loss = layer(tokens)``.

    `experts` maps rows and counts to rows. On the ranks of `tensor` the experts are slices, whose
    outputs are summed.
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
        self.router = router
        self.dispatcher = dispatcher
        self.experts = experts
        self._tensor = tensor

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Output (tokens × width) for `tokens`, and the weighted balancing loss."""
        routing = self.router(tokens)
        state = self.dispatcher.dispatch_preprocess(tokens, routing)
        state = self.dispatcher.dispatch(state)
        state = self.dispatcher.dispatch_postprocess(state)
        state = self._run_experts(state)
        state = self.dispatcher.combine_preprocess(state)
        state = self.dispatcher.combine(state)
        return self.dispatcher.combine_postprocess(state), routing.balancing_loss

    def stages(self, tokens: Tensor) -> list[Stage]:
        """Router and phases of :meth:`forward`, as functions of the previous stage's result."""
        dispatcher = self.dispatcher
        first = partial(dispatcher.dispatch_preprocess, tokens)
        own: dict[str, Callable[[Any], Any]] = {DISPATCH[0]: first, EXPERTS: self._run_experts}
        phases = [(name, own.get(name) or getattr(dispatcher, name)) for name in PHASES]
        return [(ROUTER, lambda _: self.router(tokens)), *phases]

    def _run_experts(self, state: DispatchState) -> DispatchState:
        rows = self.experts(copy_to_group(state.rows, self._tensor), state.counts)
        return replace(state, rows=all_reduce_sum(rows, self._tensor))


def backward(outputs: Sequence[Tensor], balancing: Tensor, cotangents: Sequence[Tensor]) -> None:
    """Backward pass from `outputs` and the balancing loss, which without balancing is constant."""
    if balancing.requires_grad:
        outputs = (*outputs, balancing)
        cotangents = (*cotangents, torch.ones_like(balancing))
    torch.autograd.backward(outputs, cotangents)


def capture_router(router: Router, tokens: Tensor) -> nn.Module:
    """Capture `router` as forward and backward CUDA graphs for the shape of `tokens`.

    Only the router can be captured: later shapes depend on the routing.

    Raises:
        Unsupported: the device is no CUDA device.
    """
    if tokens.device.type != "cuda":
        raise Unsupported(
            f"moe.graph_capture requires a CUDA device, not {tokens.device.type}; use "
            "--device=cuda, or set false"
        )
    sample = tokens.detach().requires_grad_()
    with _captured_beside_other_threads():
        graphed = torch.cuda.make_graphed_callables(_TensorRouter(router), (sample,))
    return GraphedRouter(graphed)


@contextmanager
def _captured_beside_other_threads() -> Iterator[None]:
    """Context in which a capture restricts calls of its own thread alone.

    By default CUDA forbids unsafe calls of every thread meanwhile, and NCCL's watchdog queries
    events in one of its own, which would fail and spoil the capture. ``make_graphed_callables`` has
    no argument for it and takes ``torch.cuda.graph`` as it stands when called.

    Source: ``cudaStreamCaptureModeThreadLocal``,
    https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__STREAM.html
    """
    graph = torch.cuda.graph
    torch.cuda.graph = partial(graph, capture_error_mode="thread_local")  # type: ignore[assignment,misc]
    try:
        yield
    finally:
        torch.cuda.graph = graph  # type: ignore[misc]


class _TensorRouter(nn.Module):
    """Router that returns a tuple of tensors, as capture requires."""

    def __init__(self, router: Router):
        super().__init__()
        self.router = router

    def forward(self, tokens: Tensor) -> tuple[Tensor, ...]:
        return tuple(part for part in self.router(tokens) if part is not None)


class GraphedRouter(nn.Module):
    """Captured router that returns a routing."""

    def __init__(self, graphed: Callable[..., Any]):
        super().__init__()
        self._graphed = graphed

    def forward(self, tokens: Tensor) -> Routing:
        """Routing of `tokens`, in buffers overwritten by the next call."""
        return Routing(*self._graphed(tokens))
