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


@dataclass(frozen=True, kw_only=True)
class Gathered(DispatchState):
    """Rows with the slots and weights of their assignments: this rank's, then all ranks'.

    A visit that was dropped has a place that no rank has.
    """

    slots: Tensor
    weights: Tensor


class AllGather(Dispatcher[Gathered]):
    """All-gathers tokens and routing, and reduce-scatters outputs.

    What is summed over the ranks travels in fp32, so that the sum is not rounded on the way. Every
    rank must have equally many tokens.
    """

    def __init__(self, placement: Placement, group: dist.ProcessGroup):
        super().__init__(placement)
        self._group = group

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
        return replace(
            state,
            rows=all_gather(state.rows, self._group),
            slots=all_gather(state.slots, self._group),
            weights=all_gather(state.weights, self._group),
        )

    def dispatch_postprocess(self, state: Gathered) -> Gathered:
        """One row per assignment to a local expert, ordered by expert.

        The host has to know how many there are: the device is waited for, once.
        """
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
        return replace(state, rows=reduce_scatter(state.rows, self._group))

    def combine_postprocess(self, state: Gathered) -> Tensor:
        """Cast the sums to the tokens' dtype."""
        return state.rows.to(state.dtype)


@dataclass(frozen=True, kw_only=True)
class Exchanged(DispatchState):
    """State with row counts `send_sizes` to and `receive_sizes` from each rank.

    `by_expert` orders those that arrived, rank by rank, by this rank's experts.
    """

    send_sizes: list[int]
    receive_sizes: list[int]
    by_expert: Tensor


class AllToAll(Dispatcher[Exchanged]):
    """Uneven all-to-all in both directions; ranks exchange the sizes first.

    Source: Lepikhin et al., GShard, section 3.2, https://arxiv.org/abs/2006.16668; the phases are
    those of Megatron-Core's dispatcher of the same name.
    """

    def __init__(self, placement: Placement, group: dist.ProcessGroup):
        super().__init__(placement)
        self._group = group

    def dispatch_preprocess(self, tokens: Tensor, routing: Routing) -> Exchanged:
        """One row per assignment, ordered by slot, and the split sizes.

        The host has to know the lengths: the device is waited for, once.
        """
        ranks, per_rank = self.placement.ranks, self.placement.per_rank
        rows, order, counts = self.visiting_rows(tokens, routing)
        send_counts = counts.view(ranks, per_rank)
        receive_counts = exchange_counts(
            send_counts, self._group
        )  # of each rank, for each expert here
        lengths: list[list[int]] = torch.stack((send_counts.sum(1), receive_counts.sum(1))).tolist()
        send_sizes, receive_sizes = lengths
        experts = torch.arange(per_rank, device=rows.device).repeat(ranks)
        arriving = experts.repeat_interleave(
            receive_counts.flatten(), output_size=sum(receive_sizes)
        )
        return Exchanged(
            rows=rows,
            counts=receive_counts.sum(0),
            order=order,
            routing=routing,
            dtype=tokens.dtype,
            send_sizes=send_sizes,
            receive_sizes=receive_sizes,
            by_expert=arriving.argsort(stable=True),
        )

    def dispatch(self, state: Exchanged) -> Exchanged:
        """Send the rows to the ranks of their experts."""
        rows = all_to_all(
            state.rows,
            receive_sizes=state.receive_sizes,
            send_sizes=state.send_sizes,
            group=self._group,
        )
        return replace(state, rows=rows)

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
        rows = all_to_all(
            state.rows,
            receive_sizes=state.send_sizes,
            send_sizes=state.receive_sizes,
            group=self._group,
        )
        return replace(state, rows=rows)

    def combine_postprocess(self, state: Exchanged) -> Tensor:
        """Weighted sums in the tokens' dtype."""
        return weighted_output(state)
