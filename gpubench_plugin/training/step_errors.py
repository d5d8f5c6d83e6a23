"""Values of successive training steps beside those of a reference, and how far off they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from math import isfinite

from gpubench_plugin.errors import CorrectnessError
from gpubench_plugin.flags import UNCHECKED
from gpubench_plugin.records import Check


@dataclass(frozen=True, kw_only=True)
class Values:
    """Values of successive steps beside those of the reference, with the bands and their key.

    `bands` are that of the first steps and that of the later ones; `first` says how many are first:
    until there was an update, all of them have the weights of the start. Where a value is `absent`,
    there is nothing to compare: a skipped step has no norm.
    """

    name: str
    measured: Sequence[float]
    reference: Sequence[float]
    absent: Sequence[bool]
    bands: tuple[float, float]
    first: int
    key: str

    def errors(self) -> Iterator[float | None]:
        """That of each step, relative to the largest value of the reference up to it.

        None of a step without a value.

        Relative to the step's own value, a loss that training brings to zero would have an error
        without bounds.

        Raises:
            CorrectnessError: an error is beyond its band, or the reference is not finite.
        """
        largest = accumulate(map(abs, self.reference), max)
        values = zip(self.measured, self.reference, largest, self.absent, strict=True)
        for step, (measured, reference, scale, absent) in enumerate(values, 1):
            if not isfinite(reference):
                raise CorrectnessError(f"step {step}: the {self.name} of plain fp32 is {reference}")
            if absent:
                yield None
                continue
            difference = abs(measured - reference)
            error = difference / scale if scale else float(difference > 0)
            band = self.bands[step > self.first]
            if not error <= band:
                raise CorrectnessError(
                    f"step {step}: the {self.name} is {measured:.6g}, in plain fp32 "
                    f"{reference:.6g}: an error of {error:.2g} relative to {scale:.6g} is beyond "
                    f"the band of {band:g} ({self.key})"
                )
            yield error


def compared(losses: Values, norms: Values, nearest: Values) -> Check:
    """The record of all errors, the largest of which are facts.

    `norms` are the global gradient norms, `nearest` those of the gradients nearest the loss, of
    which only the first steps' are there. Where a GradScaler skipped every compared step no
    gradient was: that is ``unchecked``.

    Raises:
        CorrectnessError: the first step that is wrong, whatever of it is.
    """
    loss_errors: list[float | None] = []
    norm_errors: list[float | None] = []
    nearest_errors: list[float | None] = []
    errors_nearest = nearest.errors()
    for loss, norm in zip(losses.errors(), norms.errors(), strict=True):
        loss_errors.append(loss)
        norm_errors.append(norm)
        nearest_errors.extend(islice(errors_nearest, 1))
    loss_error, norm_error = _largest(loss_errors), _largest(norm_errors)
    record = {
        "steps": len(loss_errors),
        "loss_error": loss_error,
        "loss_bands": losses.bands,
        "gradient_norm_error": norm_error,
        "gradient_bands": norms.bands,
        "nearest_error": _largest(nearest_errors),
        "nearest_band": nearest.bands[0],
        "losses": losses.reference,
        "gradient_norms": norms.reference,
        "loss_errors": loss_errors,
        "gradient_norm_errors": norm_errors,
    }
    errors = {"loss_error": loss_error, "gradient_norm_error": norm_error}
    facts = {name: error for name, error in errors.items() if error is not None}
    flags = (UNCHECKED,) if norm_error is None else ()
    return Check(correctness={"reference": record}, facts=facts, flags=flags)


def _largest(errors: Sequence[float | None]) -> float | None:
    """None where every step was skipped."""
    return max((error for error in errors if error is not None), default=None)
