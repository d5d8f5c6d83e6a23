"""What the layer must give, computed by one process without any of its machinery."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from gpubench_plugin.workloads.moe.dispatchers.base import compute_dtype
from gpubench_plugin.workloads.moe.experts.base import gated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from gpubench_plugin.workloads.moe.routing import Router


def reference(
    shares: Sequence[Tensor], *, router: Router, w_in: Tensor, w_out: Tensor
) -> tuple[list[Tensor], Tensor]:
    """The outputs for the `shares` of tokens that ranks have, and the sum of balancing losses.

    All experts stand in `w_in` and `w_out`, in the order of their numbers. Each share is routed by
    itself, as its rank would; then expert after expert computes all tokens that visit it.
    """
    routings = [router(share) for share in shares]
    tokens = torch.cat(list(shares))
    inputs = tokens.to(compute_dtype(tokens))
    experts = torch.cat([routing.experts for routing in routings])
    weights = torch.cat([routing.weights for routing in routings])
    if routings[0].kept is not None:
        kept = torch.cat([routing.kept for routing in routings if routing.kept is not None])
        experts = torch.where(kept, experts, -1)
    total = torch.zeros(tokens.shape, dtype=torch.float32, device=tokens.device)
    for expert in range(len(w_in)):
        token, choice = (experts == expert).nonzero(as_tuple=True)
        computed = gated(inputs[token] @ w_in[expert]) @ w_out[expert]
        total = total.index_add(0, token, computed.float() * weights[token, choice].unsqueeze(1))
    outputs = total.to(tokens.dtype).split([len(share) for share in shares])
    return list(outputs), torch.stack([routing.balancing_loss for routing in routings]).sum()
