from __future__ import annotations

import pytest
import torch

from gpubench_plugin import catalog
from gpubench_plugin.errors import CorrectnessError
from gpubench_plugin.workloads._micro import DTYPES, TOLERANCES, require_close, require_equal


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
