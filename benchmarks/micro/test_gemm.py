"""Products of square matrices in the precision's compute dtype."""

import pytest

from gpubench_plugin import Unsupported
from gpubench_plugin.config.marks import caches

_CHECKED_ROWS = 64  # enough to hit every tile, cheap in fp64; not measured


@caches
@pytest.mark.parametrize(
    "scale",
    [
        "x1",
        pytest.param("x2", marks=pytest.mark.gpubench_full()),
        pytest.param("x4", marks=pytest.mark.gpubench_full()),
    ],
)
@pytest.mark.gpubench(config="micro", timing="kernel")
def test_matmul(gpubench, torch_device, sizes, dtype, tolerance, scale, cache):
    """A product of two square matrices of ``micro.matrix_size``, or two or four times as large."""
    import torch

    from .checks import require_close

    size = sizes.matrix_size * int(scale[1:])
    left, right = (torch.randn(size, size, device=torch_device, dtype=dtype) for _ in range(2))
    product = torch.empty_like(left)

    def step():
        torch.mm(left, right, out=product)

    step()
    rows = slice(None, None, max(1, size // _CHECKED_ROWS))
    expected = left[rows].double() @ right.double()
    error = require_close("matmul", product[rows], expected, tolerance=tolerance)
    gpubench.record("relative_error", error)
    gpubench(step, flops=2 * size**3)


@pytest.fixture
def fp8_products(precision):
    """Sets the precision's compute dtype to fp8, for MFU against the fp8 peak."""
    precision.compute_dtype = "fp8"


@caches
@pytest.mark.parametrize("accumulation", [pytest.param("precise", id=pytest.HIDDEN_PARAM), "fast"])
@pytest.mark.precision("bf16")
@pytest.mark.gpubench(config="micro", timing="kernel")
def test_matmul_fp8(gpubench, torch_device, sizes, fp8_products, accumulation, cache):
    """A product of two scaled fp8 (e4m3) matrices with a bf16 result.

    ``fast`` accumulates in the registers of the tensor cores, with fewer bits than fp32.
    """
    import torch

    from .checks import (
        TOLERANCES,
        require_close,
        skip_if_unsupported,
    )

    is_fast = accumulation == "fast"
    if is_fast and torch_device.type != "cuda":
        raise Unsupported("fast accumulation is one of CUDA's; choose --device=cuda")
    size = sizes.matrix_size
    exact = torch.randn(2, size, size, device=torch_device)
    left, right = exact.to(torch.float8_e4m3fn)
    right = right.t().contiguous().t()  # _scaled_mm requires a column-major second operand
    scale = torch.ones((), device=torch_device)

    def step():
        return torch._scaled_mm(
            left,
            right,
            scale_a=scale,
            scale_b=scale,
            out_dtype=torch.bfloat16,
            use_fast_accum=is_fast,
        )

    with skip_if_unsupported("torch multiplies no fp8 matrices here"):
        product = step()
    rows = slice(None, None, max(1, size // _CHECKED_ROWS))
    expected = left[rows].double() @ right.double()
    error = require_close("fp8 matmul", product[rows], expected, tolerance=TOLERANCES["bf16"])
    gpubench.record("relative_error", error)
    gpubench(step, flops=2 * size**3)
