"""Fixtures of several folders: the tolerance."""

import pytest


@pytest.fixture
def tolerance(precision):
    """Largest relative error of a result."""
    from .micro.checks import TOLERANCES

    return TOLERANCES[precision.compute_dtype]
