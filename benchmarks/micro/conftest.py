"""Fixtures of micro benchmarks: sizes, dtype, tolerance."""

import pytest

from gpubench_plugin import Unsupported


@pytest.fixture
def sizes(gpubench_config):
    """The section ``micro`` of the configuration."""
    return gpubench_config.micro


@pytest.fixture
def dtype(precision):
    """Storage dtype of tensors, by the precision's compute dtype."""
    from gpubench_plugin.workloads.base import DTYPES

    if precision.compute_dtype not in DTYPES:
        raise Unsupported(f"micro benchmarks do not support {precision.compute_dtype}")
    return DTYPES[precision.compute_dtype]


@pytest.fixture
def tolerance(precision, dtype):
    """Largest relative error of a result."""
    from gpubench_plugin.workloads._micro.checks import TOLERANCES

    return TOLERANCES[precision.compute_dtype]
