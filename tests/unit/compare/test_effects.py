import math

import pytest

from gpubench_plugin.compare import threshold
from gpubench_plugin.config.limits import Limit


@pytest.mark.parametrize(("better", "base", "head"), [("lower", 2.0, 2.1), ("higher", 2.0, 1.9)])
def test_an_effect_is_positive_where_the_head_is_worse(better, base, head):
    """Five percent worse is 0.05 in both directions, from values and from log ratios."""
    assert threshold.effect_of(base, head, better) == pytest.approx(0.05)
    assert threshold.fraction(threshold.log_ratio(base, head, better), better) == pytest.approx(
        0.05
    )


@pytest.mark.parametrize("better", ["lower", "higher"])
def test_the_bars_are_the_log_ratios_of_the_limit(better):
    """Exactly at the bars the effect is plus or minus the limit."""
    limit = Limit.parse("3%", "limit")
    assert threshold.fraction(threshold.worse_bar(limit, better), better) == pytest.approx(0.03)
    assert threshold.fraction(threshold.better_bar(limit, better), better) == pytest.approx(-0.03)


def test_effects_beyond_all_numbers_end_in_a_finite_one():
    """An absurd log ratio overflows nothing."""
    assert math.isfinite(threshold.fraction(1e9, "lower"))
    assert math.isfinite(threshold.fraction(-1e9, "higher"))
    for better in ("lower", "higher"):
        for base, head in ((1e-308, 1e308), (1e308, 1e-308), (5e-324, 1e308)):
            assert math.isfinite(threshold.log_ratio(base, head, better))
            assert threshold.log_ratio(base, head, better) == -threshold.log_ratio(
                head, base, better
            )
    assert math.isfinite(threshold.effect_of(1e-308, 1e308, "lower"))
