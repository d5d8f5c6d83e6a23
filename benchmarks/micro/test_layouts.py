"""What the place of a matrix in memory costs, and what it costs to look at one."""

import pytest

from gpubench_plugin import CorrectnessError


@pytest.mark.parametrize("layout", ["contiguous", "padded", "transposed"])
@pytest.mark.gpubench(config="micro")
def test_layout_elementwise(gpubench, torch_device, sizes, layout):
    """A sum with a contiguous matrix: two matrices are read, one is written."""
    import torch

    from gpubench_plugin.workloads._micro import require_equal, with_layout

    plain, other = torch.randn(2, sizes.rows, sizes.columns, device=torch_device)
    matrix, total = with_layout(plain, layout), torch.empty_like(plain)

    def step():
        torch.add(matrix, other, out=total)

    step()
    require_equal(f"sum with a {layout} matrix", total, plain + other)
    gpubench(step, bytes=3 * plain.nbytes)


@pytest.mark.parametrize("layout", ["contiguous", "padded", "transposed"])
@pytest.mark.precision("fp32")
@pytest.mark.gpubench(config="micro")
def test_layout_matmul(gpubench, torch_device, sizes, tolerance, layout):
    """A product with a contiguous matrix."""
    import torch

    from gpubench_plugin.workloads._micro import require_close, with_layout

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
    """An exponential of every element, whose input is looked at before; ``none`` is its cost alone.

    To know that all elements are finite takes a pass over them, and on a device a wait for it.
    """
    import torch

    from gpubench_plugin.workloads._micro import with_layout

    matrix = torch.randn(sizes.rows, sizes.columns, device=torch_device)
    result = torch.empty_like(matrix)
    valid = {
        "none": lambda given: True,
        "contiguous": lambda given: given.is_contiguous(),
        "finite": lambda given: bool(torch.isfinite(given).all()),
    }[validation]
    wrong = {
        "contiguous": lambda: with_layout(matrix, "padded"),
        "finite": lambda: matrix.index_fill(0, torch.tensor(0, device=torch_device), torch.nan),
    }
    found = validation == "none" or not valid(wrong[validation]())
    if not found or not valid(matrix):
        raise CorrectnessError(f"the validation {validation!r} takes wrong for right")

    def step():
        if not valid(matrix):
            raise CorrectnessError(f"the input is not {validation}")
        torch.exp(matrix, out=result)

    gpubench(step, bytes=2 * matrix.nbytes)
