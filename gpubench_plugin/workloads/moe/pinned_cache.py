"""Experts in pinned host memory with an LRU cache on the device."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from gpubench_plugin.core.errors import Unsupported
from gpubench_plugin.workloads.moe.experts import host_counts, swiglu

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpubench_plugin.workloads.moe.experts import StackedExperts

    Weights = tuple[Tensor, Tensor]


class CachedExperts:
    """Sequential experts for inference, of which `size` are on the device, the others on the host.

    The one used longest ago gives way. Copies are ordered on the device's stream after the products
    that read the overwritten slot; the host does not wait. Experts without rows are skipped.
    """

    def __init__(self, host_weights: Sequence[Weights], *, size: int, device: torch.device):
        self._host_weights = host_weights
        self._slots = [
            tuple(torch.empty_like(weight, device=device) for weight in host_weights[0])
            for _ in range(min(size, len(host_weights)))
        ]
        self._slot_of_expert: OrderedDict[int, int] = OrderedDict()
        self.reset_counts()

    def __call__(self, rows: Tensor, counts: Tensor) -> Tensor:
        """Outputs of all experts in order."""
        outputs = []
        for expert, part in enumerate(rows.split(host_counts(counts, len(rows)))):
            if len(part):
                w_in, w_out = self.weights(expert)
                outputs.append(swiglu(part @ w_in) @ w_out)
        return torch.cat(outputs) if outputs else rows.clone()

    def weights(self, expert: int) -> Weights:
        """Weights of `expert` on the device."""
        if expert in self._slot_of_expert:
            self.hits += 1
            self._slot_of_expert.move_to_end(expert)
        else:
            self.misses += 1
            self._load(expert)
        w_in, w_out = self._slots[self._slot_of_expert[expert]]
        return w_in, w_out

    def reset_counts(self) -> None:
        """Reset hits and misses."""
        self.hits = self.misses = 0

    def _load(self, expert: int) -> None:
        if len(self._slot_of_expert) < len(self._slots):
            slot = len(self._slot_of_expert)
        else:
            _, slot = self._slot_of_expert.popitem(last=False)
        for target, source in zip(self._slots[slot], self._host_weights[expert], strict=True):
            target.copy_(source, non_blocking=True)
        self._slot_of_expert[expert] = slot


def offload(
    experts: StackedExperts, *, size: int, pin: Callable[[Tensor], Tensor] = Tensor.pin_memory
) -> CachedExperts:
    """Move `experts` to pinned memory with `size` device slots.

    Raises:
        Unsupported: the device is no CUDA device.
    """
    device = experts.w_in.device
    if pin is Tensor.pin_memory and device.type != "cuda":
        raise Unsupported(
            f"moe.pinned_cache requires a GPU, not {device.type}; use --device=cuda, or set null"
        )
    with torch.no_grad():
        host_weights = [
            (pin(w_in.cpu()), pin(w_out.cpu()))
            for w_in, w_out in zip(experts.w_in.unbind(), experts.w_out.unbind(), strict=True)
        ]
    return CachedExperts(host_weights, size=size, device=device)
