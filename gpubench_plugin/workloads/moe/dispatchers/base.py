"""What a dispatcher is, the phases on both sides of the experts, and the one within a rank."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from gpubench_plugin.workloads.moe.groups import Placement
    from gpubench_plugin.workloads.moe.routing import Routing

DISPATCH: Final = ("dispatch_preprocess", "dispatch", "dispatch_postprocess")
COMBINE: Final = ("combine_preprocess", "combine", "combine_postprocess")


@dataclass(frozen=True, kw_only=True)
class Travel:
    """Rows of tokens on their way to experts and back.

    `rows` (rows × width) are those that this rank holds now; `counts` says how many of them each
    place is to compute. `order` says of the rows in the order of places which visit each is:
    token · k + choice. `routing` is this rank's, `dtype` what the layer was given and gives back.
    """

    rows: Tensor
    counts: Tensor
    order: Tensor
    routing: Routing
    dtype: torch.dtype


T = TypeVar("T", bound=Travel)


class Dispatcher(ABC, Generic[T]):
    """Brings tokens to their experts, ordered by expert, and what those computed back.

    Each phase gives a new travel and changes none, so that it can be repeated alone. A phase that
    a dispatcher leaves as it is does nothing. Within an expert rows are in the order of ranks and,
    of one rank, of tokens: so every dispatcher gives an expert the very matrix that one process
    with all tokens would.
    """

    def __init__(self, placement: Placement):
        self.placement = placement

    @abstractmethod
    def dispatch_preprocess(self, tokens: Tensor, routing: Routing) -> T:
        """What can be done before anything is sent: order the tokens, agree on how many travel."""

    def dispatch(self, travel: T) -> T:
        """Send the rows to their experts' ranks."""
        return travel

    def dispatch_postprocess(self, travel: T) -> T:
        """Order what arrived by expert."""
        return travel

    def combine_preprocess(self, travel: T) -> T:
        """Order what the experts computed for the way back."""
        return travel

    def combine(self, travel: T) -> T:
        """Send the rows back to their tokens' ranks."""
        return travel

    def visiting_rows(self, tokens: Tensor, routing: Routing) -> tuple[Tensor, Tensor, Tensor]:
        """A row of `tokens` for each visit, ordered by place; that order; the visits of places."""
        places = self.placement.places(routing.experts)
        order, counts = by_place(places, kept=routing.kept, total=self.placement.experts)
        return tokens.to(compute_dtype(tokens))[order // places.shape[1]], order, counts

    @abstractmethod
    def combine_postprocess(self, travel: T) -> Tensor:
        """The output (tokens × width): the weighted sum of what a token's experts computed."""

    def idles_in(self, phase: str) -> bool:
        """Whether it does nothing in `phase`."""
        return getattr(type(self), phase) is getattr(Dispatcher, phase)


def compute_dtype(tensor: Tensor) -> torch.dtype:
    """What matrix products of `tensor` compute in: autocast's type where that is on."""
    kind = tensor.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else tensor.dtype


def by_place(places: Tensor, *, kept: Tensor | None, total: int) -> tuple[Tensor, Tensor]:
    """How to order visits by place, and how many each of `total` places has.

    Of visits that are not `kept` there is no row; how many are kept the host has to be told.
    """
    flat = places.flatten()
    if kept is None:
        return flat.argsort(stable=True), visits_of(flat, total)
    flat = torch.where(kept.flatten(), flat, total)
    counts = visits_of(flat, total + 1)[:total]
    return flat.argsort(stable=True)[: int(counts.sum())], counts


def visits_of(places: Tensor, total: int) -> Tensor:
    """How often each of `total` places occurs."""
    counts = torch.zeros(total, dtype=torch.int64, device=places.device)
    return counts.scatter_add(0, places, torch.ones_like(places))


def weighted_sum(rows: Tensor, order: Tensor, weights: Tensor) -> Tensor:
    """For each token the sum of its `rows`, each times its weight; in fp32.

    The k weights of a token stand in `weights` (tokens × k), and `order` says which visit each row
    is.
    """
    scaled = rows.float() * weights.flatten()[order].unsqueeze(1)
    total = scaled.new_zeros((len(weights), rows.shape[1]))
    return total.index_add(0, order // weights.shape[1], scaled)


def weighted_output(travel: Travel) -> Tensor:
    """The output for the tokens of a `travel` that has come back, in their dtype."""
    return weighted_sum(travel.rows, travel.order, travel.routing.weights).to(travel.dtype)


class Local(Dispatcher[Travel]):
    """The dispatcher of a rank that has all experts: tokens are ordered by expert, and stay.

    Without a capacity no shape depends on the routing.
    """

    def dispatch_preprocess(self, tokens: Tensor, routing: Routing) -> Travel:
        """A row for each visit, ordered by place."""
        rows, order, counts = self.visiting_rows(tokens, routing)
        return Travel(rows=rows, counts=counts, order=order, routing=routing, dtype=tokens.dtype)

    def combine_postprocess(self, travel: Travel) -> Tensor:
        """The weighted sums, in the dtype of the tokens."""
        return weighted_output(travel)
