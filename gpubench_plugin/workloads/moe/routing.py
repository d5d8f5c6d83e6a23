"""Router: expert assignment and weights of each token."""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, one_hot

from gpubench_plugin.config.sections import MoeSection


class Routing(NamedTuple):
    """Routing of tokens to k experts each.

    `experts` (tokens × k) are in order of probability, with `weights` (tokens × k, fp32);
    `kept_mask` (tokens × k) is False where an expert was full, None without a capacity. `counts`
    (experts) include dropped assignments. `balancing_loss` is weighted already.
    """

    experts: Tensor
    weights: Tensor
    counts: Tensor
    balancing_loss: Tensor
    kept_mask: Tensor | None = None


def slot_counts(slots: Tensor, total: int) -> Tensor:
    """Number of occurrences of each of `total` slots."""
    counts = torch.zeros(total, dtype=torch.int64, device=slots.device)
    return counts.scatter_add(0, slots, torch.ones_like(slots))


class Router(nn.Module):
    """Linear layer and softmax over experts, selecting the `top_k` largest.

    It computes in fp32 whatever the precision (Fedus et al., Switch Transformers, section 2.4,
    https://arxiv.org/abs/2101.03961). The k weights are scaled to sum to one, as in GShard
    (Lepikhin et al., algorithm 1, https://arxiv.org/abs/2006.16668), but a single one is not, as in
    Switch, or the router would get no gradient. Shapes depend only on the number of tokens, and
    nothing synchronizes.
    """

    def __init__(self, section: MoeSection, weight: Tensor):
        super().__init__()
        self.section = section
        self.weight = nn.Parameter(weight)  # experts × width
        self.differs_per_rank = (
            "the router balances the load of each rank's own batch"
            if section.balancing == "aux-loss"
            else None
        )
        """Why ranks that train together are not one process; None: they are."""

    def forward(self, tokens: Tensor) -> Routing:
        """Route `tokens` (tokens × width)."""
        with torch.autocast(tokens.device.type, enabled=False):
            logits = linear(tokens.float(), self.weight.float())
            probabilities = logits.softmax(dim=-1)
            weights, experts = probabilities.topk(self.section.top_k, dim=-1)
            if self.section.top_k > 1:
                weights = weights / weights.sum(dim=-1, keepdim=True)
            counts = slot_counts(experts.flatten(), self.section.experts)
            loss = self._balancing_loss(logits, probabilities, counts)
        return Routing(experts, weights, counts, loss, self._capacity_mask(experts))

    def _balancing_loss(self, logits: Tensor, probabilities: Tensor, counts: Tensor) -> Tensor:
        """Weighted load balancing loss, z-loss, or their sum; zero in eval mode.

        aux-loss: E · Σ f·P, with f the share of visits and P the mean probability of each of E
        experts; 1 where they are even. Source: Switch Transformers, equations 4 to 6; GShard's
        (algorithm 1) is the same but for a constant. Of several ranks each balances its own tokens.

        z-loss: the mean over the tokens of (log Σ exp logits)². Source: Zoph et al., ST-MoE,
        equation 5, https://arxiv.org/abs/2202.08906
        """
        loss = logits.new_zeros(())
        if not self.training:
            return loss
        section = self.section
        if section.balancing == "aux-loss":
            shares = counts / (len(logits) * section.top_k)
            balance = section.experts * (shares * probabilities.mean(dim=0)).sum()
            loss = loss + section.balancing_weight * balance
        z_weight = section.z_loss_weight
        if section.balancing == "z-loss":
            z_weight = section.balancing_weight
        if z_weight is not None:
            loss = loss + z_weight * logits.logsumexp(dim=-1).square().mean()
        return loss

    def _capacity_mask(self, experts: Tensor) -> Tensor | None:
        """Mask of assignments within capacity: first choices before second ones, in token order.

        Source of the order: GShard, algorithm 1.
        """
        if self.section.capacity_factor is None:
            return None
        by_choice = experts.t().flatten()
        number = one_hot(by_choice, self.section.experts).cumsum(dim=0)
        position = number.gather(1, by_choice.unsqueeze(1)).flatten() - 1
        within_capacity = position < capacity(self.section, len(experts))
        return within_capacity.view(self.section.top_k, -1).t()


def capacity(section: MoeSection, tokens: int) -> int:
    """Maximum assignments per expert: factor · tokens · k / experts, rounded up.

    It applies to the tokens of each rank. Source: Switch Transformers, equation 3.
    """
    assert section.capacity_factor is not None
    return ceil(section.capacity_factor * tokens * section.top_k / section.experts)
