"""Student's t against scipy's."""

from __future__ import annotations

import pytest
from scipy import stats

from gpubench_plugin.core.student import expanded_t, t_quantile


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 9, 30, 101])
def test_quantiles_are_scipys(freedom: int) -> None:
    """For odd and even degrees of freedom, on both sides together."""
    for confidence in (0.5, 0.95, 0.99):
        exact = stats.t.ppf((1 + confidence) / 2, freedom)
        assert t_quantile(confidence, freedom) == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("freedom", [4.0, 4.5, 9.0, 30.25, 101.0])
def test_the_expansion_is_near_the_quantile(freedom: float) -> None:
    """To half a percent from four degrees of freedom on, also between whole ones."""
    normal = stats.norm.ppf(0.975)
    assert expanded_t(freedom, normal) == pytest.approx(stats.t.ppf(0.975, freedom), rel=5e-3)
