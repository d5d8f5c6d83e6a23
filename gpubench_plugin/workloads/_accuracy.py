"""Error of tensors against expected ones."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor


def relative_error(actual: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """Norm of the difference of all tensors over that of the expected ones, in double precision."""
    difference = _norm(a.double() - e.double() for a, e in zip(actual, expected, strict=True))
    return difference / max(_norm(e.double() for e in expected), sys.float_info.min)


def _norm(tensors: Iterable[Tensor]) -> float:
    """Norm over all `tensors`, of which one at a time needs to be in memory."""
    return float(torch.stack([tensor.detach().norm() for tensor in tensors]).norm())
