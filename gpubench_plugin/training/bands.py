"""How far training may be from plain fp32: the largest relative errors, by precision.

An error is that of a loss or of a gradient's global norm, relative to the largest value of the
reference up to that step. It comes from three sources, which the bands follow.

*Rounding.* A precision with p bits of significand rounds by up to u = 2^-p: 2^-24 (fp32), 2^-11
(TF32, fp16), 2^-8 (bf16). Errors of single operations have both signs and average out in a loss,
which is a mean over samples, less so in a norm of gradients, which passed every layer twice: hence
two bands, of 5 to 10 u, and of 40 to 60 u. In fp32 u says little: sums of thousands of numbers in
another order, as a compiler, several ranks or another kernel take them, are more than u apart.

*Feedback.* From the second step on the weights differ, too, and the difference grows with every
update, in the tiny presets by two to five times in a step.

*Conditioning.* Batch normalisation divides by the deviation of a few values: with eight samples of
1×1 pixels in the last stage of a ResNet, the gradient at the first step in bf16 already is off by a
third, and training in 16 bits soon takes another way. Such models have bands of their own; in fp32
they are as sharp as needed, so that is where a wrong model of this kind is found.

Sources: Higham, Accuracy and Stability of Numerical Algorithms, 2002, chapters 2 and 4; what the
tiny presets show is in ``docs/guide/correctness.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from torch import nn

from gpubench_plugin.errors import UsageProblem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpubench_plugin.config import MeasureSection


@dataclass(frozen=True, kw_only=True)
class Band:
    """The largest relative errors: of the loss of a step, and of the norm of its gradient."""

    loss: float
    gradient_norm: float

    def covering(self, other: Band) -> Band:
        """The wider of both."""
        return Band(
            loss=max(self.loss, other.loss),
            gradient_norm=max(self.gradient_norm, other.gradient_norm),
        )


_FP32: Final = Band(loss=1e-4, gradient_norm=1e-3)
_ELEVEN_BITS: Final = Band(loss=0.005, gradient_norm=0.03)
_NORMALISED: Final = Band(loss=0.5, gradient_norm=0.75)
_BF16: Final = Band(loss=0.02, gradient_norm=0.15)

BANDS: Final[Mapping[str, Band]] = {
    "fp32": _FP32,
    "tf32": _ELEVEN_BITS,
    "amp": _ELEVEN_BITS,
    "bf16": _BF16,
    # Weights are rounded, too, at every update: small ones are lost.
    "fp16-true": Band(loss=0.01, gradient_norm=0.05),
    "bf16-true": Band(loss=0.05, gradient_norm=0.2),
}
"""By the name of a precision."""

BATCH_NORMALISED: Final[Mapping[str, Band]] = {
    "fp32": Band(loss=1e-3, gradient_norm=1e-2),
    "tf32": _NORMALISED,
    "amp": _NORMALISED,
    "bf16": _NORMALISED,
    "fp16-true": _NORMALISED,
    "bf16-true": _NORMALISED,
}
"""The same of models with batch normalisation."""

_OF_DTYPE: Final = {"fp32": "fp32", "tf32": "tf32", "fp16": "amp", "bf16": "bf16"}
_BATCH_NORM: Final = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def band_of(
    module: nn.Module, *, precision: str, compute_dtypes: Iterable[str], measure: MeasureSection
) -> Band:
    """The band of `module` in a precision, with what ``measure.check_*_band`` say instead.

    `compute_dtypes` are what matrix products compute in, which a precision of another distribution
    is judged by, and what gradients are reduced in: the widest band counts.

    Raises:
        UsageProblem: there is no band for what it computes in.
    """
    loss, gradient_norm = measure.check_loss_band, measure.check_gradient_band
    if loss is not None and gradient_norm is not None:
        return Band(loss=loss, gradient_norm=gradient_norm)
    normalised = any(isinstance(layer, _BATCH_NORM) for layer in module.modules())
    table = BATCH_NORMALISED if normalised else BANDS
    dtypes = list(compute_dtypes)
    unknown = [dtype for dtype in dtypes if dtype not in _OF_DTYPE]
    if unknown and precision not in table:
        raise UsageProblem(
            f"measure.check: no band is known for {precision}, which computes in {unknown[0]}; "
            "give measure.check_loss_band and measure.check_gradient_band, or measure.check=false"
        )
    names = [precision, *(_OF_DTYPE[dtype] for dtype in dtypes if dtype in _OF_DTYPE)]
    band = _FP32
    for name in names:
        band = band.covering(table.get(name, _FP32))
    return Band(
        loss=band.loss if loss is None else loss,
        gradient_norm=band.gradient_norm if gradient_norm is None else gradient_norm,
    )
