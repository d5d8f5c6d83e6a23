"""Reduction of a loss over the samples of a batch: a mean, which ranks can average, or a sum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from gpubench_plugin.core.errors import CorrectnessError
from gpubench_plugin.precision._nested import map_tensors, tensors_in
from gpubench_plugin.training.seeding import RandomState

if TYPE_CHECKING:
    from torch import Tensor, nn

    from gpubench_plugin.ranks.process_group import RankAgreement
    from gpubench_plugin.training.check import LossFunction
    from gpubench_plugin.workloads.base import Batch

_ROUNDING: Final = 1e-3
"""Largest relative error of a sum over parts in fp32; the mean of these parts differs by 44%."""


def refuse_sum(
    loss_of: LossFunction, module: nn.Module, batch: Batch, agreement: RankAgreement
) -> None:
    """Refuse a loss that adds up samples on ranks whose average makes its gradients too small.

    Every rank must call it.

    Raises:
        CorrectnessError: on all ranks.
    """
    (share,) = agreement.mean([float(adds_up_samples(loss_of, module, batch))])
    if share:
        raise CorrectnessError(
            "the loss of a batch is the sum of those of its samples, but "
            f"{agreement.world_size} ranks average their gradients; let it be a mean over the "
            "samples (reduction='mean')"
        )


def adds_up_samples(loss_of: LossFunction, module: nn.Module, batch: Batch) -> bool:
    """Whether the loss of `batch` is the sum of those of a third and the rest, and not their mean.

    In eval mode and without gradients; random numbers are left as they were. False where the batch
    cannot be split along its first dimension, or its parts have no loss.
    """
    samples = next((tensor.shape[0] for tensor in tensors_in(batch) if tensor.ndim), 0)
    third = samples // 3
    if not third:
        return False

    def loss(start: int, stop: int) -> float:
        def part(tensor: Tensor) -> Tensor:
            return tensor[start:stop] if tensor.ndim and len(tensor) == samples else tensor

        return float(loss_of(module, map_tensors(part, batch)))

    device = next(tensor.device for tensor in tensors_in(batch))
    was_training, random_state = module.training, RandomState.capture(device)
    module.eval()
    try:
        with torch.no_grad():
            whole, first, rest = loss(0, samples), loss(0, third), loss(third, samples)
    except Exception:  # whatever a model of the user's raises on a part of a batch
        return False
    finally:
        module.train(was_training)
        random_state.restore(device)
    mean = (third * first + (samples - third) * rest) / samples
    allowed = _ROUNDING * abs(whole)
    return abs(first + rest - whole) <= allowed < abs(mean - whole)
