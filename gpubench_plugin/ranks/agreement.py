"""Collective decisions of the ranks of a benchmark. Imports no torch for one rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import distributed as dist

_NO_PROPOSAL: Final = -(2**63)
"""The least number of 64 bits."""


class RankAgreement:
    """Collective decisions over a gloo `group` beside the one under test; None for one rank."""

    def __init__(self, group: dist.ProcessGroup | None = None):
        self.group = group
        self.world_size: int = 1 if group is None else group.size()

    def decide(self, proposal: int) -> int:
        """Rank zero's proposal, on every rank; no rank returns before all have called."""
        if self.group is None:
            return proposal
        import torch
        from torch import distributed as dist

        # Unlike a broadcast, a reduction makes rank zero wait for all.
        own_proposal = proposal if self.group.rank() == 0 else _NO_PROPOSAL
        decision = torch.tensor(own_proposal, dtype=torch.int64)
        dist.all_reduce(decision, dist.ReduceOp.MAX, group=self.group)
        return int(decision.item())

    def mean(self, values: Sequence[float]) -> list[float]:
        """Element-wise mean of `values` over all ranks, which must all call it; NaN propagates."""
        if self.group is None:
            return list(values)
        import torch
        from torch import distributed as dist

        means = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(means, group=self.group)
        return [float(mean) for mean in means / self.world_size]

    def everywhere(self, condition: bool) -> bool:
        """Whether `condition` holds on all ranks, which must all call it."""
        return self.mean([float(condition)]) == [1.0]

    def barrier(self) -> None:
        """Wait for all ranks."""
        # torch's barrier would have to guess a device, and is not faster.
        self.decide(0)
