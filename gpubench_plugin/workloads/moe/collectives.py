"""Collectives through which gradients flow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist
from torch.autograd import Function
from torch.distributed import _functional_collectives as funcol

Collective = Callable[[Tensor, dist.ProcessGroup], Tensor]

# From torch 2.13 on the old names warn.
_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def all_to_all(
    rows: Tensor, *, received: list[int], sent: list[int], group: dist.ProcessGroup
) -> Tensor:
    """The rows that all ranks of `group` have for this one, in the order of ranks.

    `sent` says how many of this rank's `rows` go to each, `received` how many come from each.
    It returns when they are there; on CUDA, when the stream will wait for them.
    """
    arriving = funcol.all_to_all_single_autograd(rows, received, sent, group)
    if not isinstance(arriving, funcol.AsyncCollectiveTensor):
        return arriving
    arrived = arriving.trigger_wait()
    # Only the wrapper knows of gradients.
    return arriving if arriving.requires_grad else arrived


def exchanged_counts(counts: Tensor, group: dist.ProcessGroup) -> Tensor:
    """From ranks × n counts for each rank to ranks × n counts from each rank; no gradients."""
    received = torch.empty_like(counts)
    dist.all_to_all_single(received, counts.contiguous(), group=group)
    return received


def all_gather(rows: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Every rank's `rows`, equally many of each, in the order of ranks."""
    return _applied(_gathered, rows, group, adjoint=_scattered)


def reduce_scatter(rows: Tensor, group: dist.ProcessGroup) -> Tensor:
    """The sum over the ranks of `rows`, of which each rank gets its part."""
    return _applied(_scattered, rows, group, adjoint=_gathered)


def copied_to(rows: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    """`rows`, which all ranks of `group` have; their gradient is the sum of all ranks'.

    Source of this and of :func:`summed_over`: the functions f and g of Shoeybi et al., Megatron-LM,
    section 3, https://arxiv.org/abs/1909.08053
    """
    return rows if group is None else _applied(_same, rows, group, adjoint=_sum)


def summed_over(rows: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    """The sum of `rows` over the ranks of `group`, on every rank."""
    return rows if group is None else _applied(_sum, rows, group, adjoint=_same)


def _gathered(rows: Tensor, group: dist.ProcessGroup) -> Tensor:
    whole = rows.new_empty((len(rows) * group.size(), *rows.shape[1:]))
    _gather(whole, rows.contiguous(), group=group)
    return whole


def _scattered(rows: Tensor, group: dist.ProcessGroup) -> Tensor:
    own = rows.new_empty((len(rows) // group.size(), *rows.shape[1:]))
    _reduce_scatter(own, rows.contiguous(), group=group)
    return own


def _sum(rows: Tensor, group: dist.ProcessGroup) -> Tensor:
    whole = rows.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(whole, group=group)
    return whole


def _same(rows: Tensor, group: dist.ProcessGroup) -> Tensor:
    return rows.view_as(rows)


def _applied(
    collective: Collective, rows: Tensor, group: dist.ProcessGroup, *, adjoint: Collective
) -> Tensor:
    """The result of a linear `collective`, through which gradients go back by its `adjoint`."""
    result: Tensor = _Linear.apply(rows, group, collective, adjoint)  # type: ignore[no-untyped-call] # torch does not declare it
    return result


class _Linear(Function):
    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, group: dist.ProcessGroup, exchange: Collective, adjoint: Collective
    ) -> Tensor:
        ctx.group, ctx.adjoint = group, adjoint
        return exchange(rows, group)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        return ctx.adjoint(gradients[0], ctx.group), None, None, None
