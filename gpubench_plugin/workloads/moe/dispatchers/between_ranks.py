"""The dispatchers between ranks: every rank gets all tokens, or each token only its experts'."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from gpubench_plugin.workloads.moe.collectives import (
    all_gather,
    all_to_all,
    exchanged_counts,
    reduce_scatter,
)
from gpubench_plugin.workloads.moe.dispatchers.base import (
    Dispatcher,
    Travel,
    by_place,
    compute_dtype,
    weighted_output,
    weighted_sum,
)

if TYPE_CHECKING:
    from torch import Tensor
    from torch import distributed as dist

    from gpubench_plugin.workloads.moe.groups import Placement
    from gpubench_plugin.workloads.moe.routing import Routing


@dataclass(frozen=True, kw_only=True)
class Gathered(Travel):
    """Rows with the `places` and `weights` of their visits: this rank's, then all ranks'.

    A visit that was dropped has a place that no rank has.
    """

    places: Tensor
    weights: Tensor


class AllGather(Dispatcher[Gathered]):
    """An all-gather of tokens and routing there, and a reduce-scatter of outputs back.

    What is summed over the ranks travels in fp32, so that the sum is not rounded on the way. Every
    rank must have equally many tokens.
    """

    def __init__(self, placement: Placement, group: dist.ProcessGroup):
        super().__init__(placement)
        self._group = group

    def dispatch_preprocess(self, tokens: Tensor, routing: Routing) -> Gathered:
        """The tokens as they are to travel, and the place of each visit."""
        places = self.placement.places(routing.experts)
        if routing.kept is not None:
            places = torch.where(routing.kept, places, self.placement.experts)
        nothing = places.new_empty(0)
        return Gathered(
            rows=tokens.to(compute_dtype(tokens)),
            counts=nothing,
            order=nothing,
            routing=routing,
            dtype=tokens.dtype,
            places=places,
            weights=routing.weights,
        )

    def dispatch(self, travel: Gathered) -> Gathered:
        """All ranks' tokens and routing, on every rank."""
        return replace(
            travel,
            rows=all_gather(travel.rows, self._group),
            places=all_gather(travel.places, self._group),
            weights=all_gather(travel.weights, self._group),
        )

    def dispatch_postprocess(self, travel: Gathered) -> Gathered:
        """A row for each visit to an expert of this rank, ordered by expert.

        The host has to know how many there are: the device is waited for, once.
        """
        per_rank = self.placement.per_rank
        here = travel.places - self.placement.rank * per_rank
        order, counts = by_place(here, kept=(here >= 0) & (here < per_rank), total=per_rank)
        rows = travel.rows[order // here.shape[1]]
        return replace(travel, rows=rows, counts=counts, order=order)

    def combine_preprocess(self, travel: Gathered) -> Gathered:
        """What this rank's experts add to each of all tokens."""
        return replace(travel, rows=weighted_sum(travel.rows, travel.order, travel.weights))

    def combine(self, travel: Gathered) -> Gathered:
        """The sums over the ranks, of which each gets those of its tokens."""
        return replace(travel, rows=reduce_scatter(travel.rows, self._group))

    def combine_postprocess(self, travel: Gathered) -> Tensor:
        """The sums in the dtype of the tokens."""
        return travel.rows.to(travel.dtype)


@dataclass(frozen=True, kw_only=True)
class Exchanged(Travel):
    """Rows of which `sent` go to each rank and `received` come from each.

    `by_expert` orders those that arrived, rank by rank, by this rank's experts.
    """

    sent: list[int]
    received: list[int]
    by_expert: Tensor


class AllToAll(Dispatcher[Exchanged]):
    """An uneven all-to-all there, and one back; the ranks agree on the lengths before.

    Source: Lepikhin et al., GShard, section 3.2, https://arxiv.org/abs/2006.16668; the phases are
    those of Megatron-Core's dispatcher of the same name.
    """

    def __init__(self, placement: Placement, group: dist.ProcessGroup):
        super().__init__(placement)
        self._group = group

    def dispatch_preprocess(self, tokens: Tensor, routing: Routing) -> Exchanged:
        """A row for each visit, ordered by place, and the lengths of what travels.

        The host has to know the lengths: the device is waited for, once.
        """
        ranks, per_rank = self.placement.ranks, self.placement.per_rank
        rows, order, counts = self.visiting_rows(tokens, routing)
        asked = counts.view(ranks, per_rank)
        coming = exchanged_counts(asked, self._group)  # of each rank, for each expert here
        lengths: list[list[int]] = torch.stack((asked.sum(1), coming.sum(1))).tolist()
        sent, received = lengths
        experts = torch.arange(per_rank, device=rows.device).repeat(ranks)
        arriving = experts.repeat_interleave(coming.flatten(), output_size=sum(received))
        return Exchanged(
            rows=rows,
            counts=coming.sum(0),
            order=order,
            routing=routing,
            dtype=tokens.dtype,
            sent=sent,
            received=received,
            by_expert=arriving.argsort(stable=True),
        )

    def dispatch(self, travel: Exchanged) -> Exchanged:
        """The rows to their experts' ranks."""
        rows = all_to_all(
            travel.rows, received=travel.received, sent=travel.sent, group=self._group
        )
        return replace(travel, rows=rows)

    def dispatch_postprocess(self, travel: Exchanged) -> Exchanged:
        """From the order of ranks to that of this rank's experts."""
        return replace(travel, rows=travel.rows[travel.by_expert])

    def combine_preprocess(self, travel: Exchanged) -> Exchanged:
        """Back to the order of ranks."""
        by_rank = torch.empty_like(travel.by_expert)
        by_rank[travel.by_expert] = torch.arange(len(by_rank), device=by_rank.device)
        return replace(travel, rows=travel.rows[by_rank])

    def combine(self, travel: Exchanged) -> Exchanged:
        """The rows back to their tokens' ranks."""
        rows = all_to_all(
            travel.rows, received=travel.sent, sent=travel.received, group=self._group
        )
        return replace(travel, rows=rows)

    def combine_postprocess(self, travel: Exchanged) -> Tensor:
        """The weighted sums, in the dtype of the tokens."""
        return weighted_output(travel)
