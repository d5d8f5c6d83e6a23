"""The dispatcher that sends each token to its experts' ranks, and to no other.

Source: Lepikhin et al., GShard, section 3.2, https://arxiv.org/abs/2006.16668; the phases are those
of Megatron-Core's dispatcher of the same name.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from gpubench_plugin.workloads.moe.collectives import all_to_all, exchanged_counts
from gpubench_plugin.workloads.moe.dispatchers.base import Dispatcher, Travel, weighted_output

if TYPE_CHECKING:
    from torch import Tensor
    from torch import distributed as dist

    from gpubench_plugin.workloads.moe.groups import Placement
    from gpubench_plugin.workloads.moe.routing import Routing


@dataclass(frozen=True, kw_only=True)
class Exchanged(Travel):
    """Rows of which `sent` go to each rank and `received` come from each.

    `by_expert` orders those that arrived, rank by rank, by this rank's experts.
    """

    sent: list[int]
    received: list[int]
    by_expert: Tensor


class AllToAll(Dispatcher[Exchanged]):
    """An uneven all-to-all there, and one back; the ranks agree on the lengths before."""

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
