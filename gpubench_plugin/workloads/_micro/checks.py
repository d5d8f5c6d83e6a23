"""Checks of an operation: whether it is supported, and right to the precision it computes in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch
from torch import Tensor

from gpubench_plugin.errors import CorrectnessError, Unsupported

DTYPES: Final = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}
"""What tensors are stored in, by a precision's ``compute_dtype``."""

# Four roundings to the mantissa of 10, 10 and 7 bits. In fp32 thousands of additions round, too, by
# far less than TF32 would.
TOLERANCES: Final = {"fp32": 5e-5, "tf32": 2.0**-8, "fp16": 2.0**-8, "bf16": 2.0**-5}
"""Largest relative error of a result, by a precision's ``compute_dtype``."""


def require_close(what: str, actual: Tensor, expected: Tensor, *, tolerance: float) -> float:
    """The norm of the difference over the norm of `expected`.

    Raises:
        CorrectnessError: another shape, a value that is not finite, or a larger error.
    """
    if actual.shape != expected.shape:
        raise CorrectnessError(
            f"{what}: the shape is {tuple(actual.shape)}, not {tuple(expected.shape)}"
        )
    exact = expected.detach().double()
    error = float((actual.detach().double() - exact).norm() / exact.norm())
    if not error <= tolerance:  # also where it is no number
        raise CorrectnessError(
            f"{what}: the relative error is {error:.3g}; allowed: {tolerance:.3g}"
        )
    return error


def require_equal(what: str, actual: Tensor, expected: Tensor) -> None:
    """Refuse anything but the same bits.

    Raises:
        CorrectnessError: they differ.
    """
    if not torch.equal(actual.cpu(), expected.cpu()):
        raise CorrectnessError(f"{what}: not equal to what it should be")


@contextmanager
def lacking(what: str) -> Iterator[None]:
    """Let torch's refusal of an operation be the reason why `what` is unsupported.

    What torch or the device lacks makes a benchmark unsupported; what goes wrong does not.

    Raises:
        Unsupported: with the first line of what torch says.
    """
    try:
        yield
    except (RuntimeError, TypeError, ValueError) as error:
        if went_wrong(error):
            raise
        raise Unsupported(f"{what}: {str(error).partition(chr(10))[0]}") from error


def went_wrong(error: Exception) -> bool:
    """Whether it is no refusal: there was no memory, or a kernel failed."""
    if isinstance(error, torch.OutOfMemoryError | torch.AcceleratorError):
        return True
    return "DefaultCPUAllocator" in str(error)
