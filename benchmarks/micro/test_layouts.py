"""Cost of a matrix's memory layout, and of validating a matrix."""

import pytest

from gpubench_plugin import CorrectnessError
from gpubench_plugin.config.marks import caches

LAYOUTS = ("contiguous", "padded", "transposed")
"""``padded``: rows with gaps; ``transposed``: column-major."""

_GAP = 8  # elements, enough to make rows not contiguous


def with_layout(matrix, layout):
    """Copy `matrix` with the strides of one of :data:`LAYOUTS`."""
    import torch

    if layout == "padded":
        rows, columns = matrix.shape
        return matrix.new_zeros(rows, columns + _GAP)[:, :columns].copy_(matrix)
    if layout == "transposed":
        return torch.empty_like(matrix.t().contiguous()).copy_(matrix.t()).t()
    return matrix.contiguous()


@caches
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.gpubench(config="micro", timing="kernel")
def test_layout_elementwise(gpubench, torch_device, sizes, layout, cache):
    """A sum with a contiguous matrix: two matrices are read, one is written."""
    import torch

    from .checks import require_equal

    plain, other = torch.randn(2, sizes.rows, sizes.columns, device=torch_device)
    matrix, total = with_layout(plain, layout), torch.empty_like(plain)

    def step():
        torch.add(matrix, other, out=total)

    step()
    require_equal(f"sum with a {layout} matrix", total, plain + other)
    gpubench(step, bytes=3 * plain.nbytes)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.precision("fp32")
@pytest.mark.gpubench(config="micro", timing="kernel")
def test_layout_matmul(gpubench, torch_device, sizes, tolerance, layout):
    """A product with a contiguous matrix."""
    import torch

    from .checks import require_close

    size = sizes.matrix_size
    plain, other = torch.randn(2, size, size, device=torch_device)
    matrix, product = with_layout(plain, layout), torch.empty_like(plain)

    def step():
        torch.mm(matrix, other, out=product)

    step()
    expected = plain[:64].double() @ other.double()
    require_close(f"product of a {layout} matrix", product[:64], expected, tolerance=tolerance)
    gpubench(step, flops=2 * size**3)


@pytest.mark.parametrize("validation", ["none", "contiguous", "finite"])
@pytest.mark.gpubench(config="micro")
def test_validation(gpubench, torch_device, sizes, validation):
    """Exponential of every element after a validation of the input; ``none`` has no validation.

    ``finite`` takes a pass over the elements, and synchronizes a device.
    """
    import torch

    matrix = torch.randn(sizes.rows, sizes.columns, device=torch_device)
    result = torch.empty_like(matrix)
    is_valid = {
        "none": lambda tensor: True,
        "contiguous": lambda tensor: tensor.is_contiguous(),
        "finite": lambda tensor: bool(torch.isfinite(tensor).all()),
    }[validation]
    invalid = {
        "contiguous": lambda: with_layout(matrix, "padded"),
        "finite": lambda: matrix.index_fill(0, torch.tensor(0, device=torch_device), torch.nan),
    }
    detects_invalid = validation == "none" or not is_valid(invalid[validation]())
    if not detects_invalid or not is_valid(matrix):
        raise CorrectnessError(f"the validation {validation!r} accepts an invalid matrix")

    def step():
        if not is_valid(matrix):
            raise CorrectnessError(f"the input is not {validation}")
        torch.exp(matrix, out=result)

    gpubench(step, bytes=2 * matrix.nbytes)
