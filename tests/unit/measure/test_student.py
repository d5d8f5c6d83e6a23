"""Student's t against scipy's."""

from __future__ import annotations

import pytest
from scipy import stats

from gpubench_plugin.measure.student import t_quantile


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 9, 30, 101])
def test_quantiles_are_scipys(freedom: int) -> None:
    """For odd and even degrees of freedom, on both sides together."""
    for confidence in (0.5, 0.95, 0.99):
        exact = stats.t.ppf((1 + confidence) / 2, freedom)
        assert t_quantile(confidence, freedom) == pytest.approx(exact, rel=1e-9)
