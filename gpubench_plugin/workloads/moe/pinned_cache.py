"""Experts in pinned host memory, of which the device holds those that were used last."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from gpubench_plugin.errors import Unsupported
from gpubench_plugin.workloads.moe.experts.base import gated, on_host

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpubench_plugin.workloads.moe.experts.base import StackedExperts

    Weights = tuple[Tensor, Tensor]


class ExpertCache:
    """Places on a device for `size` of the experts whose weights the host keeps.

    The one used longest ago gives way. A copy waits on the device's stream for the products that
    still read what it overwrites, and the host waits for none.
    """

    def __init__(self, kept: Sequence[Weights], *, size: int, device: torch.device):
        self._kept = kept
        self._places = [
            tuple(torch.empty_like(weight, device=device) for weight in kept[0])
            for _ in range(min(size, len(kept)))
        ]
        self._held: OrderedDict[int, int] = OrderedDict()
        self.hits = 0
        self.misses = 0

    def weights(self, expert: int) -> Weights:
        """The weights of `expert`, on the device."""
        if expert in self._held:
            self.hits += 1
            self._held.move_to_end(expert)
        else:
            self.misses += 1
            self._load(expert)
        w_in, w_out = self._places[self._held[expert]]
        return w_in, w_out

    def forget_counts(self) -> None:
        """Count hits and misses from zero."""
        self.hits = self.misses = 0

    def _load(self, expert: int) -> None:
        if len(self._held) < len(self._places):
            place = len(self._held)
        else:
            _, place = self._held.popitem(last=False)
        for target, source in zip(self._places[place], self._kept[expert], strict=True):
            target.copy_(source, non_blocking=True)
        self._held[expert] = place


class CachedExperts:
    """Experts one after another, their weights from a cache; for inference only.

    One without rows is neither computed nor loaded.
    """

    def __init__(self, cache: ExpertCache):
        self.cache = cache

    def __call__(self, rows: Tensor, counts: Tensor) -> Tensor:
        """The outputs of all experts, in their order."""
        outputs = []
        for expert, part in enumerate(rows.split(on_host(counts, len(rows)))):
            if len(part):
                w_in, w_out = self.cache.weights(expert)
                outputs.append(gated(part @ w_in) @ w_out)
        return torch.cat(outputs) if outputs else rows.clone()


def offloaded(
    experts: StackedExperts, *, size: int, pin: Callable[[Tensor], Tensor] = Tensor.pin_memory
) -> CachedExperts:
    """`experts` moved into pinned memory, of which `size` fit on their device at a time.

    Raises:
        Unsupported: their device is none to which pinned memory speeds up copies.
    """
    device = experts.w_in.device
    if pin is Tensor.pin_memory and device.type != "cuda":
        raise Unsupported(
            f"moe.pinned_cache: pinned memory is for copies to a GPU, and the device is "
            f"{device.type}; use --device=cuda, or null"
        )
    with torch.no_grad():
        kept = [
            (pin(w_in.cpu()), pin(w_out.cpu()))
            for w_in, w_out in zip(experts.w_in.unbind(), experts.w_out.unbind(), strict=True)
        ]
    return CachedExperts(ExpertCache(kept, size=size, device=device))
