"""The rate of floating-point operations that TFLOP/s and MFU are about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubench_plugin.measure.metrics._totals import per_second

if TYPE_CHECKING:
    from gpubench_plugin.records import Observation


def flops_per_device(seen: Observation) -> float | None:
    """FLOP/s of one device, the mean over the ranks; None where no operations were counted.

    Each rank has one device, so the sum of all ranks' work is divided by their number. Per device
    is how the field reports it: A. Chowdhery et al., PaLM (2022), appendix B,
    https://arxiv.org/abs/2204.02311.
    """
    if not seen.work.flops:
        return None
    return per_second(seen.work.flops, seen.samples) / seen.world_size
