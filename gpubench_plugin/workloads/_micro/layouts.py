"""Matrices in different memory layouts."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

LAYOUTS: Final = ("contiguous", "padded", "transposed")
"""``padded``: rows with gaps; ``transposed``: column-major."""

_GAP = 8  # elements, enough to make rows not contiguous


def with_layout(matrix: Tensor, layout: str) -> Tensor:
    """Copy `matrix` with the strides of one of :data:`LAYOUTS`."""
    if layout == "padded":
        rows, columns = matrix.shape
        return matrix.new_zeros(rows, columns + _GAP)[:, :columns].copy_(matrix)
    if layout == "transposed":
        return torch.empty_like(matrix.t().contiguous()).copy_(matrix.t()).t()
    return matrix.contiguous()
