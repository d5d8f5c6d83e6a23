"""How ranks stay in step while they measure: rank zero decides, over a group of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import distributed as dist

_NO_OPINION: Final = torch.iinfo(torch.int64).min


class RankAgreement:
    """The agreement of the ranks of a gloo `group`; without one, of a single rank with itself.

    The group carries no tensor of the benchmark, so that the group under test is not disturbed.
    """

    def __init__(self, group: dist.ProcessGroup | None = None):
        self.group = group
        self.world_size: int = 1 if group is None else group.size()

    def decide(self, proposal: int) -> int:
        """Rank zero's proposal, on every rank; no rank returns before all have asked."""
        if self.group is None:
            return proposal
        # A broadcast would let rank zero go on alone; a reduction needs the word of every rank.
        opinion = proposal if self.group.rank() == 0 else _NO_OPINION
        decision = torch.tensor(opinion, dtype=torch.int64)
        dist.all_reduce(decision, dist.ReduceOp.MAX, group=self.group)
        return int(decision.item())

    def mean(self, values: Sequence[float]) -> list[float]:
        """The mean over the ranks of each of `values`, on every rank; NaN where one has NaN.

        Every rank must call it, with equally many values.
        """
        means = torch.tensor(values, dtype=torch.float64)
        if self.group is not None:
            dist.all_reduce(means, group=self.group)
        return [float(mean) for mean in means / self.world_size]

    def barrier(self) -> None:
        """Return once every rank is here."""
        # Unlike torch's barrier this never has to guess a device, and takes no longer.
        self.decide(0)
