"""Tolerance bands for comparing training with fp32, by precision and step.

An error is that of a loss or of a gradient's norm, relative to the largest value of the reference
up to that step. The bands follow its sources, and what was seen of them.

*Rounding.* A precision with p bits of significand rounds by up to u = 2^-p: 2^-24 (fp32), 2^-11
(TF32, fp16), 2^-8 (bf16). Errors of single operations have both signs and average out in a loss,
which is a mean over samples, less so in a norm of gradients, which passed every layer twice. At the
first step there is nothing else: its bands are narrow, several times what was seen, and far below
what a wrong scale makes of a gradient. In fp32 u says little: sums of thousands of numbers in
another order, as a compiler, several ranks or another kernel take them, are more than u apart.

*Feedback.* From the second step on the weights differ, too, and the difference grows with every
update: later steps have wider bands.

*Conditioning.* Batch normalisation divides by the deviation of a few values: with eight samples of
1×1 pixels in the last stage of a ResNet, the gradient at the first step in bf16 already is off by
up to half its size, and training in 16 bits soon takes another way. Such models have bands of their
own, and at the first step it is the gradient nearest the loss that is judged, of the parameters
behind the last normalisation: it is as well conditioned as the loss, and has the scale of all the
others. Over four seeds the global norm of a tiny ResNet-50 in bf16 was off by up to 50 % at the
first step, that nearest the loss by 4 %.

Sources: Higham, Accuracy and Stability of Numerical Algorithms, 2002, chapters 2 and 4; what the
tiny presets show is in ``docs/evidence/bands.md``, which ``tools/evidence/bands.py`` writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from torch.nn.modules.batchnorm import _BatchNorm

from gpubench_plugin.errors import UsageProblem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch import nn

    from gpubench_plugin.config import MeasureSection


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


def _bands(first: tuple[float, float], later: tuple[float, float]) -> Bands:
    return Bands(Band(*first), Band(*later))


# First the loss, then the gradient; those of the first step, then those of later ones. The largest
# errors of all tiny presets in seeds 0 to 3, in the same order (docs/evidence/bands.md): amp 1.0e-4
# and 3.8e-4, then 2.1e-2 and 0.18; bf16 6.7e-4 and 2.9e-3, then 1.4e-2 and 0.081; bf16-true 1.2e-3
# and 3.3e-3, then 3.1e-2 and 0.28.
_FP32: Final = _bands((1e-4, 1e-3), (1e-4, 1e-3))
_ELEVEN_BITS: Final = _bands((0.001, 0.01), (0.05, 0.4))
_NORMALISED_LATER: Final = (0.5, 1.5)

BANDS: Final[Mapping[str, Bands]] = {
    "fp32": _FP32,
    "tf32": _ELEVEN_BITS,
    "amp": _ELEVEN_BITS,
    "bf16": _bands((0.005, 0.05), (0.05, 0.4)),
    "fp16-true": _ELEVEN_BITS,
    # Weights are rounded, too, at every update: small ones are lost.
    "bf16-true": _bands((0.01, 0.05), (0.1, 0.6)),
}
"""By the name of a precision."""

# Here the largest are, nearest the loss: amp 1.2e-2 and 3.2e-3, bf16 8.8e-2 and 4.0e-2, bf16-true
# 3.3e-2 and 4.2e-2, fp16-true 3.7e-2 and 1.0e-2; of later steps 0.37 and, of the global norm, 0.6.
BATCH_NORMALISED: Final[Mapping[str, Bands]] = {
    "fp32": _bands((1e-3, 1e-2), (1e-3, 1e-2)),
    "tf32": _bands((0.1, 0.05), _NORMALISED_LATER),
    "amp": _bands((0.1, 0.05), _NORMALISED_LATER),
    "bf16": _bands((0.3, 0.2), _NORMALISED_LATER),
    "fp16-true": _bands((0.1, 0.05), _NORMALISED_LATER),
    "bf16-true": _bands((0.3, 0.2), _NORMALISED_LATER),
}
"""The same of models with batch normalisation; at the first step, of the gradient nearest the loss.
"""

_OF_DTYPE: Final = {"fp32": "fp32", "tf32": "tf32", "fp16": "amp", "bf16": "bf16"}


def bands_of(
    module: nn.Module, *, precision: str, compute_dtypes: Iterable[str], measure: MeasureSection
) -> Bands:
    """Bands of `module` in a precision, overridden by ``measure.check_*_band``.

    `compute_dtypes` are what matrix products compute in, which a precision of another distribution
    is judged by, and what gradients are reduced in: the widest bands count.

    Raises:
        UsageProblem: there are no bands for what it computes in.
    """
    loss, gradient_norm = measure.check_loss_band, measure.check_gradient_band
    if loss is not None and gradient_norm is not None:
        return _bands((loss, gradient_norm), (loss, gradient_norm))
    table = BATCH_NORMALISED if normalises_batches(module) else BANDS
    dtypes = list(compute_dtypes)
    unknown_dtypes = [dtype for dtype in dtypes if dtype not in _OF_DTYPE]
    if unknown_dtypes and precision not in table:
        raise UsageProblem(
            f"measure.check: no tolerance is known for {precision}, which computes in "
            f"{unknown_dtypes[0]}; set measure.check_loss_band and "
            "measure.check_gradient_band, or measure.check=false"
        )
    names = [precision, *(_OF_DTYPE[dtype] for dtype in dtypes if dtype in _OF_DTYPE)]
    bands = _FP32
    for name in names:
        bands = bands.union(table.get(name, _FP32))
    first_band, later_band = (
        Band(
            loss=band.loss if loss is None else loss,
            gradient_norm=band.gradient_norm if gradient_norm is None else gradient_norm,
        )
        for band in (bands.first, bands.later)
    )
    return Bands(first=first_band, later=later_band)


def normalises_batches(module: nn.Module) -> bool:
    """Whether the model has batch normalization, which couples the samples of a batch."""
    return any(isinstance(layer, _BatchNorm) for layer in module.modules())


def nearest_the_loss(module: nn.Module) -> list[nn.Parameter]:
    """Trainable parameters after the last batch normalization, in registration order.

    They get their gradients straight from the loss. They are all of them where there is none, or
    nothing behind it.
    """
    trainable = [p for p in module.parameters() if p.requires_grad]
    if not normalises_batches(module):
        return trainable
    parameters: dict[nn.Parameter, None] = {}  # each once, also where layers share it
    for layer in module.modules():
        if isinstance(layer, _BatchNorm):
            parameters.clear()
        else:
            parameters.update(dict.fromkeys(layer.parameters(recurse=False)))
    return [p for p in parameters if p.requires_grad] or trainable
