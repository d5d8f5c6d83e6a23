"""The dispatchers between ranks: every rank gets all tokens, or each token only its experts'."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from gpubench_plugin.workloads.moe.collectives import (
    all_gather,
    all_to_all,
    exchange_counts,
    reduce_scatter,
)
from gpubench_plugin.workloads.moe.dispatchers.base import (
    Dispatcher,
    DispatchState,
    T,
    compute_dtype,
    sort_by_slot,
    weighted_output,
    weighted_sum,
)

if TYPE_CHECKING:
    from torch import Tensor
    from torch import distributed as dist

    from gpubench_plugin.workloads.moe.groups import Placement
    from gpubench_plugin.workloads.moe.routing import Routing


class _BetweenRanks(Dispatcher[T]):
    def __init__(self, placement: Placement, group: dist.ProcessGroup):
        super().__init__(placement)
        self.group = group


@dataclass(frozen=True, kw_only=True)
class Gathered(DispatchState):
    """Rows with `slots` and `weights` of their assignments: this rank's, then all ranks'.

    A dropped assignment has a slot of no rank.
    """

    slots: Tensor
    weights: Tensor


class AllGather(_BetweenRanks[Gathered]):
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
        """Reduce-scatter the contributions."""
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


class AllToAll(_BetweenRanks[Exchanged]):
    """Uneven all-to-all in both directions; ranks exchange the sizes first.

    Source: Lepikhin et al., GShard, section 3.2, https://arxiv.org/abs/2006.16668; the phases are
    those of Megatron-Core's dispatcher of the same name.
    """

    def dispatch_preprocess(self, tokens: Tensor, routing: Routing) -> Exchanged:
        """One row per assignment, ordered by slot, and the split sizes; synchronizes."""
        ranks, per_rank = self.placement.ranks, self.placement.per_rank
        rows, order, counts = self.assigned_rows(tokens, routing)
        send_counts = counts.view(ranks, per_rank)
        receive_counts = exchange_counts(send_counts, self.group)  # ranks × local experts
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

    def combine_postprocess(self, state: Exchanged) -> Tensor:
        """Weighted sums in the tokens' dtype."""
        return weighted_output(state)

    def _exchanged(
        self, state: Exchanged, receive_sizes: list[int], send_sizes: list[int]
    ) -> Exchanged:
        rows = all_to_all(
            state.rows, receive_sizes=receive_sizes, send_sizes=send_sizes, group=self.group
        )
        return replace(state, rows=rows)
