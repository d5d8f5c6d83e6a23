"""Collectives of the mixture-of-experts layer with gradients."""

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
    rows: Tensor, *, receive_sizes: list[int], send_sizes: list[int], group: dist.ProcessGroup
) -> Tensor:
    """Rows that all ranks of `group` send to this one, in rank order.

    `send_sizes` and `receive_sizes` count the rows to and from each rank. Waits for them; on CUDA
    only the stream does.
    """
    output = funcol.all_to_all_single_autograd(rows, receive_sizes, send_sizes, group)
    if not isinstance(output, funcol.AsyncCollectiveTensor):
        return output
    waited_output = output.trigger_wait()
    # Only the wrapper is part of the autograd graph.
    return output if output.requires_grad else waited_output


def all_gather(rows: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Concatenate equally sized `rows` of all ranks, in rank order."""
    return _apply(_gather_rows, rows, group, adjoint=_scatter_rows)


def reduce_scatter(rows: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Sum `rows` over ranks and return this rank's part."""
    return _apply(_scatter_rows, rows, group, adjoint=_gather_rows)


def copy_to_group(rows: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    """Identity on replicated `rows`; the gradient is summed over ranks.

    Source of this and of :func:`all_reduce_sum`: the functions f and g of Shoeybi et al.,
    Megatron-LM, section 3, https://arxiv.org/abs/1909.08053
    """
    return rows if group is None else _apply(_identity, rows, group, adjoint=_sum)


def all_reduce_sum(rows: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    """Sum of `rows` over the ranks of `group`, on every rank."""
    return rows if group is None else _apply(_sum, rows, group, adjoint=_identity)


def _gather_rows(rows: Tensor, group: dist.ProcessGroup) -> Tensor:
    output = rows.new_empty((len(rows) * group.size(), *rows.shape[1:]))
    _gather(output, rows.contiguous(), group=group)
    return output


def _scatter_rows(rows: Tensor, group: dist.ProcessGroup) -> Tensor:
    output = rows.new_empty((len(rows) // group.size(), *rows.shape[1:]))
    _reduce_scatter(output, rows.contiguous(), group=group)
    return output


def _sum(rows: Tensor, group: dist.ProcessGroup) -> Tensor:
    total = rows.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total, group=group)
    return total


def _identity(rows: Tensor, group: dist.ProcessGroup) -> Tensor:
    return rows.view_as(rows)


def _apply(
    collective: Collective, rows: Tensor, group: dist.ProcessGroup, *, adjoint: Collective
) -> Tensor:
    """Result of a linear `collective`, whose backward pass is its `adjoint`."""
    result: Tensor = _LinearFunction.apply(rows, group, collective, adjoint)  # type: ignore[no-untyped-call] # torch does not declare it
    return result


class _LinearFunction(Function):
    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        group: dist.ProcessGroup,
        collective: Collective,
        adjoint: Collective,
    ) -> Tensor:
        ctx.group, ctx.adjoint = group, adjoint
        return collective(rows, group)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        return ctx.adjoint(gradients[0], ctx.group), None, None, None
