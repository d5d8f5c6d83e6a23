"""Which gradients of a model tell a wrong scale from rounding.

Batch normalisation divides by the deviation of a few values. What lies before it, seen from the
loss, has gradients that rounding to 16 bits changes by a large part: over four seeds the global
norm of a tiny ResNet-50 in bf16 was off by up to 50 % at the first step. The parameters behind the
last normalisation get theirs straight from the loss: there it was 4 % (docs/evidence/bands.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn.modules.batchnorm import _BatchNorm

if TYPE_CHECKING:
    from torch import nn


def normalises_batches(module: nn.Module) -> bool:
    """Whether a sample's result depends on the others of its batch, through batch normalisation."""
    return any(isinstance(layer, _BatchNorm) for layer in module.modules())


def nearest_the_loss(module: nn.Module) -> list[nn.Parameter]:
    """The trainable parameters behind the last batch normalisation, in the order of registration.

    They are all of them where there is none, or nothing behind it.
    """
    trainable = [p for p in module.parameters() if p.requires_grad]
    if not normalises_batches(module):
        return trainable
    behind: dict[nn.Parameter, None] = {}  # each once, also where layers share it
    for layer in module.modules():
        if isinstance(layer, _BatchNorm):
            behind.clear()
        else:
            behind.update(dict.fromkeys(layer.parameters(recurse=False)))
    return [p for p in behind if p.requires_grad] or trainable
