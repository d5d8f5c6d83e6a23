from __future__ import annotations

import pytest
import torch

from benchmarks.micro.checks import (
    TOLERANCES,
    require_close,
    require_equal,
    skip_if_unsupported,
)
from gpubench_plugin.core import catalog
from gpubench_plugin.core.errors import CorrectnessError, Unsupported
from gpubench_plugin.workloads.base import DTYPES
from tests.support.micro_suite import operations


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


def as_tf32(tensor: torch.Tensor) -> torch.Tensor:
    """Rounded to a mantissa of 10 bits."""
    return ((tensor.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def test_fp32_allows_no_tf32() -> None:
    """A convolution of inputs rounded to TF32 is beyond the tolerance, fp32 is within a fifth."""
    torch.manual_seed(0)
    images, weights = torch.randn(1, 64, 28, 28), torch.randn(64, 64, 3, 3) / 24
    exact = torch.nn.functional.conv2d(images.double(), weights.double(), padding=1)
    convolved = torch.nn.functional.conv2d(images, weights, padding=1)
    require_close("fp32", convolved, exact, tolerance=TOLERANCES["fp32"] / 5)
    rounded = torch.nn.functional.conv2d(as_tf32(images), as_tf32(weights), padding=1)
    with pytest.raises(CorrectnessError, match="relative error"):
        require_close("TF32", rounded, exact, tolerance=TOLERANCES["fp32"])


@pytest.mark.parametrize("kind", [RuntimeError, NotImplementedError, TypeError, ValueError])
def test_a_refusal_is_unsupported(kind: type[Exception]) -> None:
    """With the first line of what torch says."""
    with (
        pytest.raises(Unsupported, match=r"^fused: needs compute capability 8\.9$"),
        skip_if_unsupported("fused"),
    ):
        raise kind("needs compute capability 8.9\nraised from somewhere")


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("tried to allocate 20.00 GiB"),
        torch.AcceleratorError("an illegal memory access was encountered"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("Triton Error [CUDA]: device-side assert triggered"),
    ],
)
def test_what_goes_wrong_is_not_hidden(error: Exception) -> None:
    """Neither missing memory nor a kernel that failed is skipped over."""
    with pytest.raises(type(error)) as raised, skip_if_unsupported("fused"):
        raise error
    assert raised.value is error


@pytest.mark.parametrize(
    ("layout", "stride"), [("contiguous", (5, 1)), ("padded", (13, 1)), ("transposed", (1, 4))]
)
def test_the_same_matrix_in_another_layout(layout: str, stride: tuple[int, int]) -> None:
    """Values stay, strides differ: a gap of eight after every row, or column after column."""
    suite, matrix = operations("test_layouts"), torch.arange(20.0).reshape(4, 5)
    made = suite.with_layout(matrix, layout)
    assert torch.equal(made, matrix)
    assert made.stride() == stride
    assert layout in suite.LAYOUTS
