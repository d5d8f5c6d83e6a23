"""Experts one after another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubench_plugin.workloads.moe.experts.base import StackedExperts, one_after_another

if TYPE_CHECKING:
    from torch import Tensor


class Sequential(StackedExperts):
    """Two matrix products for each expert; the device is waited for, to learn their lengths."""

    def forward(self, rows: Tensor, counts: Tensor) -> Tensor:
        """The outputs of all experts, in their order."""
        return one_after_another(rows, counts, self.w_in, self.w_out)
