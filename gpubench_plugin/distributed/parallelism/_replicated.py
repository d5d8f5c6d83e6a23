"""Layers that every rank has as a whole, among others that the ranks share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.distributed.tensor import DTensor, Replicate, distribute_module
from torch.distributed.tensor.parallel import ParallelStyle

if TYPE_CHECKING:
    from torch import nn
    from torch.distributed.device_mesh import DeviceMesh


class Replicated(ParallelStyle):
    """A layer with the same parameters and the same inputs on every rank.

    Its parameters become DTensors, like all others: optimizers, clipping and GradScaler take no
    mixture of the two kinds.
    """

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        def prepare(_: nn.Module, inputs: tuple[Any, ...], mesh: DeviceMesh) -> tuple[Any, ...]:
            return tuple(
                DTensor.from_local(value, mesh, [Replicate()], run_check=False) for value in inputs
            )

        def restore(_: nn.Module, output: DTensor, _mesh: DeviceMesh) -> Any:
            return output.to_local()

        # Without a partition of its own it replicates every parameter from rank zero.
        return distribute_module(module, device_mesh, None, prepare, restore)  # type: ignore[arg-type] # declared to return None
