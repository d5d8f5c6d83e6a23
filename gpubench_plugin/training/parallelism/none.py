"""Training without parallelism: ranks, if several, do not communicate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubench_plugin.training.parallelism.base import Parallelism

if TYPE_CHECKING:
    from torch import nn


class NoParallelism(Parallelism):
    """Independent models without communication."""

    name = "none"

    def differs_from_one_process(self, module: nn.Module) -> str | None:
        """Every rank updates its weights from its own batch."""
        return None if self.group.world.size == 1 else "every rank trains its own model"
