"""Tolerance bands for comparing training with fp32, by precision and step.

The error of a loss or gradient norm is relative to the largest reference value up to that step.
It has three sources.

*Rounding.* A precision with p bits of significand rounds by up to u = 2^-p: 2^-24 (fp32), 2^-11
(TF32, fp16), 2^-8 (bf16). Rounding errors of both signs average out in a loss, a mean over samples,
less so in a gradient norm, after two passes through every layer. The first step has no other
errors: its bands are narrow, several times the measured errors, and far below the effect of a wrong
scale. In fp32 u says little: a compiler, several ranks or another kernel sum thousands of numbers
in another order, which differs by more than u.

*Feedback.* From the second step on the weights differ, too, and the difference grows with every
update: later steps have wider bands.

*Conditioning.* Batch normalization divides by the deviation of a few values: with eight samples of
1×1 pixels in the last stage of a ResNet the first gradient in bf16 is off by most of its size, and
16-bit training soon diverges from fp32. Such models have bands of their own, and their first
step is judged by the gradient of the parameters after the last normalization, which is as well
conditioned as the loss. Over four seeds the global norm of a tiny ResNet-50 in bf16 was off by up
to 72% at the first step, that nearest the loss by 5%.

Sources: Higham, Accuracy and Stability of Numerical Algorithms, 2002, chapters 2 and 4; the errors
of the tiny presets are in ``docs/evidence/bands.md``, written by ``tools/evidence/bands.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from gpubench_plugin.config.sections import MeasureSection
from gpubench_plugin.core.errors import UsageProblem

LOSS_ROUNDINGS: Final = 8
"""Roundings by u that a loss computed in 16 bits may be off by: 3% in bf16, 0.4% in fp16.

The loss itself is rounded, as are the terms that it is the mean of, on a CPU also its partial sums.
Largest errors of 24 seeds, five models (linear, convolutions, layer normalisation, attention), 4 to
256 samples and 10 or 1000 classes, with weights in 16 bits: cross entropy 4.3 u (bf16) and 3.2 u
(fp16), a sum of one per sample 5.3 u and 4.7 u, MSE, L1 and binary cross entropy 1.6 u. Computed in
fp32 from the same outputs it was off by 0.9 u.
"""


class Band(NamedTuple):
    """Maximum relative errors of a step's loss and gradient norm."""

    loss: float
    gradient_norm: float


class Bands(NamedTuple):
    """Bands of the `first` step and of `later` ones."""

    first: Band
    later: Band

    def union(self, other: Bands) -> Bands:
        """The wider of both, separately for first and later steps."""
        return Bands(*(Band(*map(max, *pair)) for pair in zip(self, other, strict=True)))

    def for_loss_in(self, dtype: torch.dtype) -> Bands:
        """These bands, the first loss' at least as wide as rounding to `dtype` requires."""
        rounding = LOSS_ROUNDINGS * torch.finfo(dtype).eps / 2
        return self._replace(first=self.first._replace(loss=max(self.first.loss, rounding)))


def _bands(first: tuple[float, float], later: tuple[float, float]) -> Bands:
    return Bands(Band(*first), Band(*later))


# (loss, gradient norm) of the first step, then of later ones. Largest errors of all tiny presets in
# seeds 0 to 3, in that order (docs/evidence/bands.md): amp 1.0e-4 and 3.8e-4, then 2.1e-2 and 0.18;
# bf16 6.7e-4 and 2.9e-3, then 1.4e-2 and 0.081; bf16-true 1.2e-3 and 3.3e-3, then 3.1e-2 and 0.28.
_FP32: Final = _bands((1e-4, 1e-3), (1e-4, 1e-3))
_ELEVEN_BITS: Final = _bands((0.001, 0.01), (0.05, 0.4))
_NORMALISED_LATER: Final = (0.5, 1.5)
# In fp32, too: weights off by 1e-7, as by another kernel's order of sums, change the loss of the
# tiny ResNet-50 by up to 2.4e-5 at step 1 and 0.27 later (seeds 0 to 3).

BANDS: Final[Mapping[str, Bands]] = {
    "fp64": _FP32,  # what differs is the reference's rounding
    "fp32": _FP32,
    **dict.fromkeys(("tf32", "amp", "fp16-true"), _ELEVEN_BITS),
    "bf16": _bands((0.005, 0.05), (0.05, 0.4)),
    # Weights are rounded, too: small updates are lost.
    "bf16-true": _bands((0.01, 0.05), (0.1, 0.6)),
}
"""By precision name."""

# Largest errors of the first step, nearest the loss: amp 4.1e-2 and 2.7e-2, bf16 1.5e-1 and 5.2e-2,
# bf16-true 6.8e-2 and 5.6e-2, fp16-true 2.4e-2 and 2.3e-2; of later steps 0.39 and (globally) 0.41.
BATCH_NORMALISED: Final[Mapping[str, Bands]] = {
    **dict.fromkeys(("fp64", "fp32"), _bands((1e-3, 1e-2), _NORMALISED_LATER)),
    **dict.fromkeys(("tf32", "amp", "fp16-true"), _bands((0.1, 0.05), _NORMALISED_LATER)),
    **dict.fromkeys(("bf16", "bf16-true"), _bands((0.3, 0.2), _NORMALISED_LATER)),
}
"""For models with batch normalization; at the first step, of the gradient nearest the loss."""

_OF_DTYPE: Final = {"fp64": "fp64", "fp32": "fp32", "tf32": "tf32", "fp16": "amp", "bf16": "bf16"}


def bands_of(
    module: nn.Module, *, precision: str, compute_dtypes: Iterable[str], measure: MeasureSection
) -> Bands:
    """Bands of `module` in a precision, overridden by ``measure.check_*_band``.

    `compute_dtypes` are the dtypes of matrix products, which decide for a third-party precision,
    and of gradient reduction; the widest bands count.

    Raises:
        UsageProblem: a third-party precision computes in a dtype without bands.
    """
    loss, gradient_norm = measure.check_loss_band, measure.check_gradient_band
    if loss is not None and gradient_norm is not None:
        return _bands((loss, gradient_norm), (loss, gradient_norm))
    table = BATCH_NORMALISED if has_batch_norm(module) else BANDS
    dtypes = list(compute_dtypes)
    unknown_dtypes = [dtype for dtype in dtypes if dtype not in _OF_DTYPE]
    if unknown_dtypes and precision not in table:
        raise UsageProblem(
            f"measure.check: no tolerance is known for {precision}, which computes in "
            f"{unknown_dtypes[0]}; set measure.check_loss_band and "
            "measure.check_gradient_band, or measure.check=false"
        )
    bands = _FP32
    for name in (precision, *(_OF_DTYPE[dtype] for dtype in dtypes if dtype in _OF_DTYPE)):
        bands = bands.union(table.get(name, _FP32))
    chosen = (("loss", loss), ("gradient_norm", gradient_norm))
    own_bands = {name: band for name, band in chosen if band is not None}
    return Bands(*(band._replace(**own_bands) for band in bands))


def has_batch_norm(module: nn.Module) -> bool:
    """Whether the model has batch normalization, which couples the samples of a batch."""
    return any(isinstance(layer, _BatchNorm) for layer in module.modules())


def well_conditioned_parameters(module: nn.Module) -> list[nn.Parameter]:
    """Trainable parameters after the last batch normalization, in registration order.

    All of them if there is no batch normalization, or none follows it.
    """
    trainable = [p for p in module.parameters() if p.requires_grad]
    if not has_batch_norm(module):
        return trainable
    parameters: dict[nn.Parameter, None] = {}  # an ordered set: layers may share parameters
    for layer in module.modules():
        if isinstance(layer, _BatchNorm):
            parameters.clear()
        else:
            parameters.update(dict.fromkeys(layer.parameters(recurse=False)))
    return [p for p in parameters if p.requires_grad] or trainable
