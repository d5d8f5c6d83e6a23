"""Memory-bound operations on the rows of a matrix: softmax and norms."""

import pytest

from gpubench_plugin.config.marks import caches


@caches
@pytest.mark.parametrize("operation", ["softmax", "layer_norm", "rms_norm"])
@pytest.mark.gpubench_full("bf16", "bf16-true", "amp", "fp16-true")
@pytest.mark.gpubench(config="micro", timing="kernel")
def test_norm(gpubench, torch_device, sizes, dtype, tolerance, operation, cache):
    """One pass over ``micro.rows`` × ``micro.columns`` numbers, each read and written once."""
    import torch
    from torch.nn import functional

    from .checks import require_close

    rows, columns = sizes.rows, sizes.columns
    matrix = torch.randn(rows, columns, device=torch_device, dtype=dtype)
    weight = torch.randn(columns, device=torch_device, dtype=dtype)
    exact, exact_weight = matrix.double(), weight.double()
    mean = exact.mean(dim=-1, keepdim=True)
    steps = {
        "softmax": lambda: functional.softmax(matrix, dim=-1),
        "layer_norm": lambda: functional.layer_norm(matrix, (columns,), weight, eps=1e-5),
        "rms_norm": lambda: functional.rms_norm(matrix, (columns,), weight, eps=1e-5),
    }
    definitions = {
        "softmax": lambda: exact.exp() / exact.exp().sum(dim=-1, keepdim=True),
        "layer_norm": lambda: (
            (exact - mean)
            / ((exact - mean).square().mean(dim=-1, keepdim=True) + 1e-5).sqrt()
            * exact_weight
        ),
        "rms_norm": lambda: (
            exact / (exact.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt() * exact_weight
        ),
    }
    step = steps[operation]
    error = require_close(operation, step(), definitions[operation](), tolerance=tolerance)
    gpubench.record("relative_error", error)
    gpubench(step, bytes=2 * matrix.nbytes)
