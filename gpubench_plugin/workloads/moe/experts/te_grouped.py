"""Grouped matrix products by Transformer Engine, where that is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from gpubench_plugin.errors import Unsupported
from gpubench_plugin.workloads.moe.experts.base import Experts, gated, on_host

if TYPE_CHECKING:
    from torch import Tensor, nn

    from gpubench_plugin.config import MoeSection


class TEGrouped(Experts):
    """Two ``GroupedLinear`` layers, whose lengths the host must know.

    Source: https://docs.nvidia.com/deeplearning/transformer-engine/user-guide/api/pytorch.html

    Raises:
        Unsupported: Transformer Engine is not installed.
    """

    @classmethod
    def unsupported(cls, section: MoeSection, device: torch.device, dtype: str) -> str | None:
        """Not without Transformer Engine, and on CUDA only."""
        try:
            _grouped_linear()
        except Unsupported as reason:
            return str(reason)
        return None if device.type == "cuda" else f"Transformer Engine has no {device.type}"

    def __init__(self, w_in: Tensor, w_out: Tensor):
        super().__init__()
        self._inwards, self._outwards = (_layer(weights) for weights in (w_in, w_out))

    def forward(self, rows: Tensor, counts: Tensor) -> Tensor:
        """The outputs of all experts, in their order."""
        lengths = on_host(counts, len(rows))
        output: Tensor = self._outwards(gated(self._inwards(rows, lengths)), lengths)
        return output

    def gradients(self) -> tuple[Tensor, Tensor]:
        """Those of the layers' weights, which lie transposed."""
        inwards, outwards = (
            torch.stack([p.grad.t() for p in layer.parameters() if p.grad is not None])
            for layer in (self._inwards, self._outwards)
        )
        return inwards, outwards


def _layer(weights: Tensor) -> nn.Module:
    count, inputs, outputs = weights.shape
    layer: nn.Module = _grouped_linear()(
        count, inputs, outputs, bias=False, device=weights.device, params_dtype=weights.dtype
    )
    with torch.no_grad():
        for number, weight in enumerate(weights.unbind()):
            getattr(layer, f"weight{number}").copy_(weight.t())
    return layer


def _grouped_linear() -> Any:
    try:
        from transformer_engine.pytorch import GroupedLinear
    except (ImportError, OSError) as error:  # a library of CUDA's may be missing
        raise Unsupported(
            f"Transformer Engine cannot be imported ({error}): "
            "pip install --no-build-isolation 'transformer-engine[pytorch]' on a machine with CUDA"
        ) from error
    return GroupedLinear
