"""Fixtures of micro benchmarks: sizes and dtype."""

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
