"""Collectives through which gradients flow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import distributed as dist
from torch.autograd import Function
from torch.distributed import _functional_collectives as funcol

if TYPE_CHECKING:
    from torch import Tensor

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
    gathered: Tensor = _AllGather.apply(rows, group)  # type: ignore[no-untyped-call] # torch does not declare it
    return gathered


def reduce_scatter(rows: Tensor, group: dist.ProcessGroup) -> Tensor:
    """The sum over the ranks of `rows`, of which each rank gets its part."""
    own: Tensor = _ReduceScatter.apply(rows, group)  # type: ignore[no-untyped-call] # torch does not declare it
    return own


def copied_to(rows: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    """`rows`, which all ranks of `group` have; their gradient is the sum of all ranks'.

    Source of this and of :func:`summed_over`: the functions f and g of Shoeybi et al., Megatron-LM,
    section 3, https://arxiv.org/abs/1909.08053
    """
    if group is None:
        return rows
    same: Tensor = _CopiedTo.apply(rows, group)  # type: ignore[no-untyped-call] # torch does not declare it
    return same


def summed_over(rows: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    """The sum of `rows` over the ranks of `group`, on every rank."""
    if group is None:
        return rows
    whole: Tensor = _SummedOver.apply(rows, group)  # type: ignore[no-untyped-call] # torch does not declare it
    return whole


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


class _AllGather(Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return _gathered(rows, group)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _scattered(gradients[0], ctx.group), None


class _ReduceScatter(Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return _scattered(rows, group)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _gathered(gradients[0], ctx.group), None


class _CopiedTo(Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return rows.view_as(rows)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _sum(gradients[0], ctx.group), None


class _SummedOver(Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, group: dist.ProcessGroup) -> Tensor:
        return _sum(rows, group)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0], None
