"""The router as CUDA graphs of its forward and backward pass.

It is the part of the layer whose shapes are fixed: what follows depends on where tokens go, and
asks the host for lengths.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from gpubench_plugin.errors import Unsupported
from gpubench_plugin.workloads.moe.routing import Router, Routing

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor


def captured(router: Router, tokens: Tensor) -> nn.Module:
    """`router` replayed for tokens of the very shape of `tokens`, in place of being launched.

    Raises:
        Unsupported: the device is no CUDA device.
    """
    if tokens.device.type != "cuda":
        raise Unsupported(
            f"moe.graph_capture: CUDA graphs need a CUDA device, not {tokens.device.type}; "
            "use --device=cuda, or false"
        )
    sample = tokens.detach().requires_grad_()
    plain = torch.cuda.make_graphed_callables(_Plain(router), (sample,))
    return Replayed(plain)


class _Plain(nn.Module):
    """A router that gives tensors only, as capturing asks for."""

    def __init__(self, router: Router):
        super().__init__()
        self.router = router

    def forward(self, tokens: Tensor) -> tuple[Tensor, ...]:
        routing = self.router(tokens)
        return tuple(part for part in routing if part is not None)


class Replayed(nn.Module):
    """A captured router that gives a routing."""

    def __init__(self, plain: Callable[..., Any]):
        super().__init__()
        self._plain = plain

    def forward(self, tokens: Tensor) -> Routing:
        """The routing of `tokens`, in buffers that the next call overwrites."""
        return Routing(*self._plain(tokens))
