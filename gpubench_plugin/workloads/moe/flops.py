"""The layer's matrix products on tensors without data, for a FLOP counter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch._subclasses import FakeTensorMode

from gpubench_plugin.workloads.moe.experts.grouped import Grouped
from gpubench_plugin.workloads.moe.routing import Router

if TYPE_CHECKING:
    from gpubench_plugin.config.moe import MoeSection


def run_even_loads(
    section: MoeSection, *, ranks: int, rows: int, router: bool, experts: bool, backward: bool
) -> None:
    """Run what one of `ranks` that share the experts computes of one call, with `rows` of visits.

    How the rows are spread over its experts makes no difference. Per token that is
    2·width·experts by the router and 6·width·hidden for each expert visited, and three times as
    much with the `backward` pass.
    """
    hidden = section.hidden // section.tensor_parallel
    per_rank = section.experts // ranks
    with FakeTensorMode(), torch.set_grad_enabled(backward):
        if router:
            tokens = torch.empty(section.tokens, section.width, requires_grad=backward)
            routing = Router(section, torch.empty(section.experts, section.width))(tokens)
            if backward:
                (routing.weights.square().sum() + routing.balancing_loss).backward()
        if experts:
            inputs = torch.empty(rows, section.width, requires_grad=backward)
            module = Grouped(
                torch.empty(per_rank, section.width, 2 * hidden),
                torch.empty(per_rank, hidden, section.width),
            )
            counts = torch.empty(per_rank, dtype=torch.int64)
            output = module(inputs, counts)
            if backward:
                output.backward(torch.ones_like(output))
