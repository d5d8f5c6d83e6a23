from __future__ import annotations

import pytest
import torch

from gpubench_plugin.core import catalog
from gpubench_plugin.core.errors import CorrectnessError
from gpubench_plugin.workloads._micro.checks import (
    TOLERANCES,
    require_close,
    require_equal,
)
from gpubench_plugin.workloads.base import DTYPES


def test_the_error_is_relative_to_the_norm() -> None:
    """A difference of one in a hundred is 0.01."""
    expected = torch.tensor([60.0, 80.0])
    error = require_close("sum", torch.tensor([61.0, 80.0]), expected, tolerance=0.02)
    assert error == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("actual", "message"),
    [
        (torch.tensor([66.0, 80.0]), "sum: the relative error is 0.06; allowed: 0.02"),
        (torch.tensor([60.0, torch.nan]), "relative error is nan"),
        (torch.tensor([[60.0, 80.0]]), r"the shape is \(1, 2\), not \(2,\)"),
    ],
)
def test_what_is_wrong_is_refused(actual: torch.Tensor, message: str) -> None:
    """Too large an error, a value that is not a number, another shape."""
    with pytest.raises(CorrectnessError, match=message):
        require_close("sum", actual, torch.tensor([60.0, 80.0]), tolerance=0.02)


def test_equal_means_the_same_bits() -> None:
    """A copy that differs in one place is refused."""
    require_equal("copy", torch.ones(2), torch.ones(2))
    with pytest.raises(CorrectnessError, match="copy: not equal"):
        require_equal("copy", torch.ones(2), torch.tensor([1.0, 1.0 + 1e-7]))


def test_every_precision_has_a_type_of_tensor_and_a_tolerance() -> None:
    """What the shipped precisions compute in is known here."""
    computed = {
        catalog.load("precision", name).compute_dtype for name in catalog.choices("precision")
    }
    assert computed == set(DTYPES) == set(TOLERANCES)


@pytest.mark.parametrize("name", ["fp32", "fp16", "bf16"])
def test_a_product_in_every_type_is_within_its_tolerance(name: str) -> None:
    """The tolerances allow what rounding does, and not ten times as much."""
    torch.manual_seed(0)
    left, right = torch.randn(2, 128, 128).to(DTYPES[name])
    expected = left.double() @ right.double()
    require_close(name, left @ right, expected, tolerance=TOLERANCES[name])
    with pytest.raises(CorrectnessError):
        require_close(name, left @ right, expected * 1.4, tolerance=TOLERANCES[name])


# Winograd's transforms F(4×4, 3×3) of inputs, weights and outputs.
# Source: Lavin and Gray, arXiv:1509.09308, section 4.3.
INPUTS = (
    (4, 0, -5, 0, 1, 0),
    (0, -4, -4, 1, 1, 0),
    (0, 4, -4, -1, 1, 0),
    (0, -2, -1, 2, 1, 0),
    (0, 2, -1, -2, 1, 0),
    (0, 4, 0, -5, 0, 1),
)
WEIGHTS = (
    (1 / 4, 0, 0),
    (-1 / 6, -1 / 6, -1 / 6),
    (-1 / 6, 1 / 6, -1 / 6),
    (1 / 24, 1 / 12, 1 / 6),
    (1 / 24, -1 / 12, 1 / 6),
    (0, 0, 1),
)
OUTPUTS = ((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1))


def winograd(images: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """A 3×3 convolution in tiles of 4×4 outputs, in the tensors' own type."""
    of_inputs, of_weights, of_outputs = (
        torch.tensor(rows, dtype=images.dtype) for rows in (INPUTS, WEIGHTS, OUTPUTS)
    )
    tiles = torch.nn.functional.pad(images, (1, 1, 1, 1)).unfold(2, 6, 4).unfold(3, 6, 4)
    products = torch.einsum(
        "ocij,nchwij->nohwij",
        of_weights @ weights @ of_weights.T,
        of_inputs @ tiles @ of_inputs.T,
    )
    parts = of_outputs @ products @ of_outputs.T
    count, channels, rows, columns = parts.shape[:4]
    return parts.transpose(3, 4).reshape(count, channels, 4 * rows, 4 * columns)


def as_tf32(tensor: torch.Tensor) -> torch.Tensor:
    """Rounded to a mantissa of 10 bits."""
    return ((tensor.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def test_fp32_allows_every_algorithm_of_a_convolution_but_no_tf32() -> None:
    """Winograd's is within a fifth of the tolerance; inputs rounded to TF32 are beyond it."""
    torch.manual_seed(0)
    images = torch.randn(1, 64, 28, 28)
    weights = torch.randn(64, 64, 3, 3) / 24
    exact = torch.nn.functional.conv2d(images.double(), weights.double(), padding=1)
    tolerance = TOLERANCES["fp32"]
    error = require_close("Winograd", winograd(images, weights), exact, tolerance=tolerance / 5)
    assert error > 1e-7
    rounded = torch.nn.functional.conv2d(as_tf32(images), as_tf32(weights), padding=1)
    with pytest.raises(CorrectnessError, match="relative error"):
        require_close("TF32", rounded, exact, tolerance=tolerance)
