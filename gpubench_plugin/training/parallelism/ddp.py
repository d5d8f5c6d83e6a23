"""DistributedDataParallel: full model per rank, batch split over ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn.parallel import DistributedDataParallel

from gpubench_plugin.training.parallelism.base import Parallelism

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from torch import nn


class DDP(Parallelism):
    """Gradients averaged over ranks, overlapping the backward pass.

    Source: Li et al., PyTorch Distributed: Experiences on Accelerating Data Parallel Training,
    VLDB 2020, https://arxiv.org/abs/2006.15704
    """

    name = "ddp"

    def wrap(self, module: nn.Module) -> nn.Module:
        """Wrap `module` and broadcast rank zero's parameters and buffers.

        DDP refuses a module without trainable parameters, which is returned as it is.
        """
        if not any(parameter.requires_grad for parameter in module.parameters()):
            return module
        on_accelerator = self.group.device.type != "cpu"
        return DistributedDataParallel(
            module,
            device_ids=[self.group.device.index] if on_accelerator else None,
            bucket_cap_mb=self.section.bucket_cap_mb,
            gradient_as_bucket_view=self.section.gradient_as_bucket_view,
            static_graph=self.section.static_graph,
        )

    def no_sync(self, module: nn.Module) -> AbstractContextManager[None]:
        """Accumulate gradients locally until a backward pass outside the context averages them."""
        if not isinstance(module, DistributedDataParallel):
            return super().no_sync(module)
        return module.no_sync()
