from __future__ import annotations

import pytest
import torch

from gpubench_plugin.workloads._micro.layouts import LAYOUTS, with_layout


@pytest.mark.parametrize(
    ("layout", "stride"), [("contiguous", (5, 1)), ("padded", (13, 1)), ("transposed", (1, 4))]
)
def test_the_same_matrix_in_another_layout(layout: str, stride: tuple[int, int]) -> None:
    """Values stay, strides differ: a gap of eight after every row, or column after column."""
    matrix = torch.arange(20.0).reshape(4, 5)
    made = with_layout(matrix, layout)
    assert torch.equal(made, matrix)
    assert made.stride() == stride
    assert layout in LAYOUTS
