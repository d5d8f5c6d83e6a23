import math

import pytest

from gpubench_plugin.compare import threshold
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


def test_exactly_the_limit_is_a_regression():
    """Worse by the limit or more: 100 to 102 at two percent."""
    assert judged([100.0], [102.0]).kind == "regressed"


def test_less_throughput_is_worse():
    """The direction of the metric decides."""
    verdict = judged([100.0], [95.0], metric="samples_per_s")
    assert (verdict.kind, verdict.effect) == ("regressed", pytest.approx(0.05))
    assert verdict.reason == "5.0% lower, limit 2%; threshold, not statistical"


def test_of_several_values_the_medians_count():
    """One slow value of three changes nothing."""
    verdict = judged([1.0, 1.0, 9.0], [1.0, 1.01, 5.0])
    assert (verdict.base, verdict.head, verdict.kind) == (1.0, 1.01, "unchanged")


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


def test_nothing_on_both_sides_is_no_change():
    """Peak memory may well be zero."""
    verdict = judged([0.0], [0.0], metric="peak_memory_bytes")
    assert (verdict.kind, verdict.effect) == ("unchanged", 0.0)
    assert verdict.reason == "no change, limit 2%; threshold, not statistical"


def test_a_percentage_of_a_metric_without_direction_is_an_error():
    """The reason says to state a fixed bound."""
    verdict = judged([1.0], [1.0], metric="rounds")
    assert verdict.kind == "errored"
    assert "no preferred direction" in verdict.reason


def test_a_missing_side_is_said():
    """No value of the base, none of the head: two verdicts."""
    assert judged([], [1.0]).kind == "no_baseline"
    assert judged([1.0], []).kind == "not_measured"


def test_values_that_never_vary_are_called_exact():
    """Several values of the base are needed to know that they do not vary."""
    verdict = judged([512.0] * 3, [600.0], metric="peak_memory_bytes")
    assert (verdict.kind, verdict.method, verdict.launches) == ("regressed", "exact", 3)
    assert judged([512.0], [600.0], metric="peak_memory_bytes").method == "threshold"
