"""The memory that a training step in plain fp32 takes, counted before it is taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch
from torch._subclasses import FakeTensorMode

if TYPE_CHECKING:
    from torch import Tensor

    from gpubench_plugin.workloads import Workload

_BYTES: Final = 4
"""Of a number in fp32."""

_MOMENTS: Final = 2
"""What Adam keeps of each weight; an optimizer that keeps less takes less."""


def plain_step_bytes(workload: Workload[Any], *, samples: int, updates: bool) -> int:
    """Bytes of the weights, their gradients and what one forward pass of `samples` saves.

    Twice the largest saved tensor is added, for the gradients that pass through it, and with
    `updates` the state of an optimizer. The workspace of single kernels is not counted. It runs
    forward on fake tensors, which know their shape only.
    """
    counted = workload.without_data()
    again = workload.section.activation_checkpointing  # here that is the point
    counted.section = counted.section.model_copy(update={"activation_checkpointing": again})
    with FakeTensorMode():
        module = counted.build().train()
        batch = counted.synthetic_batch(samples, device=torch.device("cpu"))
        own = {_storage(t) for t in (*module.parameters(), *module.buffers())}
        saved: dict[int, Tensor] = {}

        def keep(tensor: Tensor) -> Tensor:
            saved[_storage(tensor)] = tensor
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            _loss = counted.loss(module, batch)
        sizes = [t.untyped_storage().nbytes() for key, t in saved.items() if key not in own]
        trained = sum(p.numel() for p in module.parameters() if p.requires_grad)
        weights = sum(p.numel() for p in module.parameters())
    copies = weights + trained * (1 + (_MOMENTS if updates else 0))
    return _BYTES * copies + sum(sizes) + 2 * max(sizes, default=0)


def _storage(tensor: Tensor) -> int:
    place: int = tensor.untyped_storage()._cdata
    return place
