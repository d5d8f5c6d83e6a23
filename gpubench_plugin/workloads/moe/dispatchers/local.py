"""The dispatcher of a rank that has all experts: tokens are ordered by expert, and stay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubench_plugin.workloads.moe.dispatchers.base import (
    Dispatcher,
    Travel,
    by_place,
    compute_dtype,
    weighted_output,
)

if TYPE_CHECKING:
    from torch import Tensor

    from gpubench_plugin.workloads.moe.routing import Routing


class Local(Dispatcher[Travel]):
    """Orders tokens by expert; without a capacity no shape depends on the routing."""

    def dispatch_preprocess(self, tokens: Tensor, routing: Routing) -> Travel:
        """A row for each visit, ordered by place."""
        order, counts = by_place(
            self.placement.places(routing.experts),
            kept=routing.kept,
            total=self.placement.experts,
        )
        rows = tokens.to(compute_dtype(tokens))[order // routing.experts.shape[1]]
        return Travel(rows=rows, counts=counts, order=order, routing=routing, dtype=tokens.dtype)

    def combine_postprocess(self, travel: Travel) -> Tensor:
        """The weighted sums, in the dtype of the tokens."""
        return weighted_output(travel)
