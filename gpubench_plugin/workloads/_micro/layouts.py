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
    rows, columns = matrix.shape
    match layout:
        case "contiguous":
            return matrix.contiguous()
        case "padded":
            buffer = matrix.new_zeros(rows, columns + _GAP)
            return buffer[:, :columns].copy_(matrix)
        case "transposed":
            return torch.empty_like(matrix.t().contiguous()).copy_(matrix.t()).t()
        case other:
            message = f"no layout {other!r}"
            raise ValueError(message)
