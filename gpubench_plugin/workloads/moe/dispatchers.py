"""Dispatchers: how tokens travel to the ranks of their experts and back.

The base has the phases on both sides of the experts. Within a rank tokens are only reordered;
between ranks every rank gets all tokens, or each token travels only to its experts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

import torch
from torch import Tensor
from torch import distributed as dist
from torch.autograd import Function
from torch.distributed import _functional_collectives as funcol

from gpubench_plugin.core.errors import Unsupported
from gpubench_plugin.workloads.moe.groups import ParallelGroups, Placement
from gpubench_plugin.workloads.moe.routing import Routing, slot_counts

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


DISPATCH: Final = ("dispatch_preprocess", "dispatch", "dispatch_postprocess")
COMBINE: Final = ("combine_preprocess", "combine", "combine_postprocess")


@dataclass(frozen=True, kw_only=True)
class DispatchState:
    """Dispatch state: token rows on the way to the experts and back.

    `rows` (rows × width) are on this rank now, `counts` of them for each slot. `order` has the
    assignment of each row in slot order: token · k + choice. `dtype` is that of the layer's tokens
    and outputs.
    """

    rows: Tensor
    counts: Tensor
    order: Tensor
    routing: Routing
    dtype: torch.dtype


T = TypeVar("T", bound=DispatchState)


class Dispatcher(ABC, Generic[T]):
    """Sends tokens to their experts, ordered by expert, and returns the outputs.

    Phases return a new state and leave their input unchanged, so that each can be repeated alone;
    those not overridden are no-ops. The rows of an expert are ordered by rank and token, so that
    its matrix is that of one process with all tokens. Ranks exchange them in `group`.
    """

    def __init__(self, placement: Placement, group: Any = None):
        self.placement = placement
        self.group = group

    @abstractmethod
    def dispatch_preprocess(self, tokens: Tensor, routing: Routing) -> T:
        """Prepare sending: order tokens, agree on sizes."""

    def dispatch(self, state: T) -> T:
        """Send rows to the ranks of their experts."""
        return state

    def dispatch_postprocess(self, state: T) -> T:
        """Order received rows by expert."""
        return state

    def combine_preprocess(self, state: T) -> T:
        """Order expert outputs for the return."""
        return state

    def combine(self, state: T) -> T:
        """Send rows back to their tokens' ranks."""
        return state

    def assigned_rows(self, tokens: Tensor, routing: Routing) -> tuple[Tensor, Tensor, Tensor]:
        """A row of `tokens` per assignment in slot order, that order, and the counts by slot."""
        slots, experts = self.placement.slots(routing.experts), self.placement.experts
        order, counts = sort_by_slot(slots, kept_mask=routing.kept_mask, total=experts)
        return tokens.to(compute_dtype(tokens))[order // slots.shape[1]], order, counts

    def combine_postprocess(self, state: T) -> Tensor:
        """Output (tokens × width) in the tokens' dtype: weighted sum of the experts' outputs."""
        return weighted_sum(state.rows, state.order, state.routing.weights).to(state.dtype)

    def is_noop(self, phase: str) -> bool:
        """Whether `phase` is a no-op, as by default all are but the first and the last one."""
        is_inherited = getattr(type(self), phase) is getattr(Dispatcher, phase)
        return is_inherited and phase not in (DISPATCH[0], COMBINE[-1])


def compute_dtype(tensor: Tensor) -> torch.dtype:
    """Dtype of matrix products with `tensor`: autocast's if enabled."""
    kind = tensor.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else tensor.dtype


def sort_by_slot(slots: Tensor, *, kept_mask: Tensor | None, total: int) -> tuple[Tensor, Tensor]:
    """Permutation that sorts assignments by slot, and the count per slot.

    A `kept_mask` drops assignments, and synchronizes.
    """
    flat = slots.flatten()
    if kept_mask is None:
        return flat.argsort(stable=True), slot_counts(flat, total)
    flat = torch.where(kept_mask.flatten(), flat, total)
    counts = slot_counts(flat, total + 1)[:total]
    return flat.argsort(stable=True)[: int(counts.sum())], counts


def weighted_sum(rows: Tensor, order: Tensor, weights: Tensor) -> Tensor:
    """Sum of each token's `rows` in fp32, times `weights` (tokens × k); `order` is the rows'."""
    weighted_rows = rows.float() * weights.flatten()[order].unsqueeze(1)
    total = weighted_rows.new_zeros((len(weights), rows.shape[1]))
    return total.index_add(0, order // weights.shape[1], weighted_rows)


class Local(Dispatcher[DispatchState]):
    """Local dispatcher for a rank with all experts: tokens are only reordered."""

    def dispatch_preprocess(self, tokens: Tensor, routing: Routing) -> DispatchState:
        """One row per assignment, ordered by slot."""
        rows, order, counts = self.assigned_rows(tokens, routing)
        return DispatchState(
            rows=rows, counts=counts, order=order, routing=routing, dtype=tokens.dtype
        )


@dataclass(frozen=True, kw_only=True)
class Gathered(DispatchState):
    """Rows with `slots` and `weights` of their assignments: this rank's, then all ranks'.

    A dropped assignment has a slot of no rank.
    """

    slots: Tensor
    weights: Tensor


class AllGather(Dispatcher[Gathered]):
    """All-gathers tokens and routing, and reduce-scatters outputs in fp32.

    Every rank must have equally many tokens.
    """

    def dispatch_preprocess(self, tokens: Tensor, routing: Routing) -> Gathered:
        """Prepare tokens for sending, and look up the slot of each assignment."""
        slots = self.placement.slots(routing.experts)
        if routing.kept_mask is not None:
            slots = torch.where(routing.kept_mask, slots, self.placement.experts)
        empty = slots.new_empty(0)
        return Gathered(
            rows=tokens.to(compute_dtype(tokens)),
            counts=empty,
            order=empty,
            routing=routing,
            dtype=tokens.dtype,
            slots=slots,
            weights=routing.weights,
        )

    def dispatch(self, state: Gathered) -> Gathered:
        """Gather tokens and routing of all ranks."""
        tensors = state.rows, state.slots, state.weights
        rows, slots, weights = (all_gather(tensor, self.group) for tensor in tensors)
        return replace(state, rows=rows, slots=slots, weights=weights)

    def dispatch_postprocess(self, state: Gathered) -> Gathered:
        """One row per assignment to a local expert, ordered by expert; synchronizes."""
        per_rank = self.placement.per_rank
        local_slots = state.slots - self.placement.rank * per_rank
        order, counts = sort_by_slot(
            local_slots, kept_mask=(local_slots >= 0) & (local_slots < per_rank), total=per_rank
        )
        rows = state.rows[order // local_slots.shape[1]]
        return replace(state, rows=rows, counts=counts, order=order)

    def combine_preprocess(self, state: Gathered) -> Gathered:
        """Contribution of local experts to every token."""
        return replace(state, rows=weighted_sum(state.rows, state.order, state.weights))

    def combine(self, state: Gathered) -> Gathered:
        """Sum the contributions over the ranks, each keeping those of its own tokens."""
        return replace(state, rows=reduce_scatter(state.rows, self.group))

    def combine_postprocess(self, state: Gathered) -> Tensor:
        """Cast the sums to the tokens' dtype."""
        return state.rows.to(state.dtype)


@dataclass(frozen=True, kw_only=True)
class Exchanged(DispatchState):
    """State with row counts `send_sizes` to and `receive_sizes` from each rank.

    `by_expert` is the permutation of received rows from rank order to expert order.
    """

    send_sizes: list[int]
    receive_sizes: list[int]
    by_expert: Tensor


class AllToAll(Dispatcher[Exchanged]):
    """Uneven all-to-all in both directions; ranks exchange the sizes first.

    Source: Lepikhin et al., GShard, section 3.2, https://arxiv.org/abs/2006.16668; the phases are
    those of Megatron-Core's dispatcher of the same name.
    """

    def dispatch_preprocess(self, tokens: Tensor, routing: Routing) -> Exchanged:
        """One row per assignment, ordered by slot, and the split sizes; synchronizes."""
        ranks, per_rank = self.placement.ranks, self.placement.per_rank
        rows, order, counts = self.assigned_rows(tokens, routing)
        send_counts = counts.view(ranks, per_rank)
        receive_counts = torch.empty_like(send_counts)  # ranks × local experts
        dist.all_to_all_single(receive_counts, send_counts.contiguous(), group=self.group)
        sizes: list[list[int]] = torch.stack((send_counts.sum(1), receive_counts.sum(1))).tolist()
        send_sizes, receive_sizes = sizes
        experts = torch.arange(per_rank, device=rows.device).repeat(ranks)
        row_count = sum(receive_sizes)
        row_experts = experts.repeat_interleave(receive_counts.flatten(), output_size=row_count)
        return Exchanged(
            rows=rows,
            counts=receive_counts.sum(0),
            order=order,
            routing=routing,
            dtype=tokens.dtype,
            send_sizes=send_sizes,
            receive_sizes=receive_sizes,
            by_expert=row_experts.argsort(stable=True),
        )

    def dispatch(self, state: Exchanged) -> Exchanged:
        """Send the rows to the ranks of their experts."""
        return self._exchanged(state, state.receive_sizes, state.send_sizes)

    def dispatch_postprocess(self, state: Exchanged) -> Exchanged:
        """Reorder from rank order to expert order."""
        return replace(state, rows=state.rows[state.by_expert])

    def combine_preprocess(self, state: Exchanged) -> Exchanged:
        """Reorder back to rank order."""
        by_rank = torch.empty_like(state.by_expert)
        by_rank[state.by_expert] = torch.arange(len(by_rank), device=by_rank.device)
        return replace(state, rows=state.rows[by_rank])

    def combine(self, state: Exchanged) -> Exchanged:
        """Send the rows back to their tokens' ranks."""
        return self._exchanged(state, state.send_sizes, state.receive_sizes)

    def _exchanged(
        self, state: Exchanged, receive_sizes: list[int], send_sizes: list[int]
    ) -> Exchanged:
        rows = all_to_all(
            state.rows, receive_sizes=receive_sizes, send_sizes=send_sizes, group=self.group
        )
        return replace(state, rows=rows)


_DISPATCHERS: Final[dict[str, type[Dispatcher[Any]]]] = {
    "local": Local,
    "all-gather": AllGather,
    "all-to-all": AllToAll,
}


def dispatcher_for(name: str, placement: Placement, groups: ParallelGroups) -> Dispatcher[Any]:
    """The dispatcher named by ``moe.dispatcher``; auto: local, or all-to-all between ranks.

    Raises:
        Unsupported: it does not fit the number of ranks that share the experts.
    """
    expert = groups.expert
    if name == "auto":
        name = "local" if expert.group is None else "all-to-all"
    if name == "local" and expert.group is not None:
        raise Unsupported(
            f"moe.dispatcher=local sends no tokens to other ranks, but {expert.size} ranks share "
            "the experts; use all-gather or all-to-all, or moe.expert_parallel=1"
        )
    if name != "local" and expert.group is None:
        raise Unsupported(
            f"moe.dispatcher={name}: a single rank holds all experts; use local, or more ranks"
        )
    return _DISPATCHERS[name](placement, expert.group)
