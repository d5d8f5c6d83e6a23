import math

import pytest

from gpubench_plugin.compare import threshold
from gpubench_plugin.config.limits import Limit
from tests.support.made import series


def judged(*args, **options):
    return threshold.judge_threshold([series(*args, **options)])[0]


@pytest.mark.parametrize(
    ("head", "kind"), [(1.03, "regressed"), (1.01, "unchanged"), (0.97, "improved")]
)
def test_the_limit_alone_decides_between_two_values(head, kind):
    """The verdict has the effect, no interval, and says that it is not statistical."""
    verdict = judged([1.0], [head])
    assert (verdict.kind, verdict.method, verdict.launches) == (kind, "threshold", 1)
    assert verdict.effect == pytest.approx(head - 1)
    assert verdict.interval is None
    assert verdict.reason.endswith("threshold, not statistical")


@pytest.mark.parametrize(
    ("base", "head", "metric", "kind", "method", "said"),
    [
        ([100.0], [102.0], "step_time_s", "regressed", "threshold", "2.0% slower"),
        ([100.0], [95.0], "samples_per_s", "regressed", "threshold", "5.0% lower, limit 2%"),
        ([1.0, 1.0, 9.0], [1.0, 1.01, 5.0], "step_time_s", "unchanged", "threshold", "1.0% slower"),
        ([0.0], [0.0], "peak_memory_bytes", "unchanged", "threshold", "no change, limit 2%"),
        ([1.0], [1.0], "rounds", "errored", None, "no preferred direction"),
        ([], [1.0], "step_time_s", "no_baseline", None, "the base has no value of step_time_s"),
        ([1.0], [], "step_time_s", "not_measured", None, "the head has no value of step_time_s"),
        ([512.0] * 3, [600.0], "peak_memory_bytes", "regressed", "exact", "no variance"),
        ([512.0], [600.0], "peak_memory_bytes", "regressed", "threshold", "not statistical"),
    ],
)
def test_medians_are_judged_by_direction_and_limit(base, head, metric, kind, method, said):
    """At the limit it is a regression; a side may lack it; constant values are exact."""
    verdict = judged(base, head, metric=metric)
    assert (verdict.kind, verdict.method) == (kind, method)
    assert said in verdict.reason


@pytest.mark.parametrize(
    ("limit", "head", "kind"),
    [
        ("<=0.25", [0.3, 0.2, 0.24], "unchanged"),
        ("<=0.25", [0.3, 0.2, 0.26], "regressed"),
        (">=1000", [900.0, 1100.0, 950.0], "regressed"),
        ("<=0.25", [0.26], "regressed"),
        ("<=0.25", [0.25], "unchanged"),
        (">=1000", [999.0], "regressed"),
        (">=1000", [1000.0], "unchanged"),
        ("<=0", [0.0], "unchanged"),
        (">=-1", [-2.0], "regressed"),
    ],
)
def test_a_fixed_bound_judges_the_median_of_the_head_without_any_base(limit, head, kind):
    """It needs no base, and values of zero or below are fine."""
    verdict = judged([], head, limit=limit)
    assert (verdict.kind, verdict.method, verdict.effect) == (kind, "absolute", None)
    assert limit in verdict.reason
    assert verdict.launches == len(head)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("limit", ["2%", "<=0.25"])
def test_a_value_that_is_no_number_is_an_error_and_not_a_crash(value, limit):
    """The reason has the value, and the verdict holds nothing that JSON cannot."""
    verdict = judged([1.0], [value], limit=limit)
    assert (verdict.kind, verdict.head, verdict.effect) == ("errored", None, None)
    assert str(value) in verdict.reason


@pytest.mark.parametrize("base", [math.nan, 0.0, -1.0])
def test_a_base_of_which_nothing_is_a_percentage_is_an_error(base):
    """The reason says which side and, for zero and below, what to state instead."""
    verdict = judged([base], [1.0])
    assert verdict.kind == "errored"
    assert verdict.reason.startswith(f"the base's step_time_s is {base:g}: 2% of it is undefined")


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
