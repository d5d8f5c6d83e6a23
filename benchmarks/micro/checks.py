"""Checks of an operation: support and accuracy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch
from torch import Tensor

from gpubench_plugin.core.errors import CorrectnessError, Unsupported
from gpubench_plugin.environment.device_errors import is_device_failure
from gpubench_plugin.workloads._accuracy import relative_error

# Four roundings to mantissas of 10, 10 and 7 bits. In fp32 above what any algorithm of a 3×3
# convolution loses, and far below TF32. Measured on a CPU, with 256 channels: 2.3e-7 directly,
# 3.6e-7 by Winograd's F(2×2, 3×3) and 2.3e-6 by F(4×4, 3×3), both in fp32; 2.9e-4 with inputs
# rounded to TF32. 25,088 products, as of a weight's gradient in preset full, added one after the
# other: 2.8e-6, which F(4×4, 3×3) would make ten times as much.
# Source of the algorithms: Lavin and Gray, Fast Algorithms for Convolutional Neural Networks,
# arXiv:1509.09308.
# In fp64 as far above its rounding as in fp32.
TOLERANCES: Final = {"fp64": 1e-13, "fp32": 5e-5, "tf32": 2.0**-8, "fp16": 2.0**-8, "bf16": 2.0**-5}
"""Largest relative error of a result, by a precision's ``compute_dtype``."""


def require_close(label: str, actual: Tensor, expected: Tensor, *, tolerance: float) -> float:
    """Require a small relative error norm, and return it.

    Raises:
        CorrectnessError: another shape, a value that is not finite, or a larger error.
    """
    if actual.shape != expected.shape:
        raise CorrectnessError(
            f"{label}: the shape is {tuple(actual.shape)}, not {tuple(expected.shape)}"
        )
    error = relative_error([actual], [expected])
    if not error <= tolerance:  # also where it is NaN
        raise CorrectnessError(
            f"{label}: the relative error is {error:.3g}; allowed: {tolerance:.3g}"
        )
    return error


def require_equal(label: str, actual: Tensor, expected: Tensor) -> None:
    """Require bitwise equality.

    Raises:
        CorrectnessError: they differ.
    """
    if not torch.equal(actual.cpu(), expected.cpu()):
        raise CorrectnessError(f"{label}: not equal to the expected values")


@contextmanager
def skip_if_unsupported(label: str) -> Iterator[None]:
    """Skip if torch refuses the operation `label`; other errors are failures.

    Raises:
        Unsupported: with the first line of torch's message.
    """
    try:
        yield
    except (RuntimeError, TypeError, ValueError) as error:
        if is_failure(error):
            raise
        raise Unsupported(f"{label}: {str(error).partition(chr(10))[0]}") from error


def is_failure(error: Exception) -> bool:
    """Whether it is a real failure (memory, kernel, device) rather than a refusal."""
    return isinstance(error, torch.AcceleratorError) or is_device_failure(error)
