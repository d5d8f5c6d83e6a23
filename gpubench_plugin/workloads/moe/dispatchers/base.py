"""Base of dispatchers, the phases on both sides of the experts, and the one within a rank."""

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
    its matrix is that of one process with all tokens.
    """

    def __init__(self, placement: Placement):
        self.placement = placement

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

    @abstractmethod
    def combine_postprocess(self, state: T) -> Tensor:
        """Output (tokens × width): weighted sum of the experts' outputs."""

    def is_noop(self, phase: str) -> bool:
        """Whether `phase` is a no-op."""
        return getattr(type(self), phase) is getattr(Dispatcher, phase)


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


def slot_counts(slots: Tensor, total: int) -> Tensor:
    """Number of occurrences of each of `total` slots."""
    counts = torch.zeros(total, dtype=torch.int64, device=slots.device)
    return counts.scatter_add(0, slots, torch.ones_like(slots))


def weighted_sum(rows: Tensor, order: Tensor, weights: Tensor) -> Tensor:
    """Sum of each token's `rows` in fp32, times `weights` (tokens × k); `order` is the rows'."""
    weighted_rows = rows.float() * weights.flatten()[order].unsqueeze(1)
    total = weighted_rows.new_zeros((len(weights), rows.shape[1]))
    return total.index_add(0, order // weights.shape[1], weighted_rows)


def weighted_output(state: DispatchState) -> Tensor:
    """Output for returned rows, in the tokens' dtype."""
    return weighted_sum(state.rows, state.order, state.routing.weights).to(state.dtype)


class Local(Dispatcher[DispatchState]):
    """Local dispatcher for a rank with all experts: tokens are only reordered."""

    def dispatch_preprocess(self, tokens: Tensor, routing: Routing) -> DispatchState:
        """One row per assignment, ordered by slot."""
        rows, order, counts = self.assigned_rows(tokens, routing)
        return DispatchState(
            rows=rows, counts=counts, order=order, routing=routing, dtype=tokens.dtype
        )

    def combine_postprocess(self, state: DispatchState) -> Tensor:
        """Weighted sums in the tokens' dtype."""
        return weighted_output(state)
