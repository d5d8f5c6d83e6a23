import math
from dataclasses import replace

import numpy as np
import pytest

from gpubench_plugin.compare import history
from gpubench_plugin.compare.prediction import variance_of_median
from tests.support.made import series
from tests.support.messages import mentions

DRAWN = np.exp(0.01 * np.random.default_rng(3).standard_normal(30))


def judged(earlier, head, **options):
    return history.judge_history([series(DRAWN[:earlier], [head], **options)])[0]


def test_a_run_far_outside_of_the_earlier_ones_has_regressed():
    """With a prediction's interval; a faster one has improved; bound and direction count."""
    verdict = judged(20, 1.15)
    assert (verdict.kind, verdict.method, verdict.launches) == ("regressed", "history", 20)
    assert verdict.interval[0] < verdict.effect < verdict.interval[1]
    assert "20 earlier runs, limit 2%; a history detects effects from " in verdict.reason
    assert verdict.reason.endswith("`gpubench ab` gives a definite answer")
    assert judged(20, 0.85).kind == "improved"
    verdict = history.judge_history([series([], [0.3], limit="<=0.25")])[0]
    assert (verdict.kind, verdict.method) == ("regressed", "absolute")
    down, up = history.judge_history(
        [series(DRAWN[:20], [value], metric="samples_per_s") for value in (0.85, 1.15)]
    )
    assert (down.kind, up.kind) == ("regressed", "improved")
    assert down.effect == pytest.approx(1 - down.head / down.base)


def test_a_prediction_is_wider_than_the_mean_of_the_earlier_runs():
    """Its half-width is t·s·√(v(n) + 1/k) of the log values, v being the variance of a median."""
    verdict = judged(10, 1.0)
    from scipy import stats

    half = stats.t.ppf(0.995, 9) * np.log(DRAWN[:10]).std(ddof=1) * math.sqrt(1.1)
    low, high = (math.log1p(bound) for bound in verdict.interval)
    assert (high - low) / 2 == pytest.approx(half)
    one = history.judge_history([series(DRAWN[:10], [1.0])])[0]
    four = history.judge_history([series(DRAWN[:10], [1.0, 1.0, 1.0, 1.0])])[0]
    assert four.smallest_visible_effect < one.smallest_visible_effect
    widths = [math.log1p(v.interval[1]) - math.log1p(v.interval[0]) for v in (one, four)]
    share = variance_of_median(4)
    assert widths[0] / widths[1] == pytest.approx(math.sqrt((1 + 0.1) / (share + 0.1)))
    assert history.judge_history([series(DRAWN[:10], [1.0, 9.0, 1.1])])[0].head == 1.1


def test_a_run_like_the_earlier_ones_is_unchanged_only_where_they_hardly_vary():
    """At a tenth percent of noise a single run can say it; slow creep adds up."""
    noisy = judged(10, 1.0)
    still = history.judge_history([series(DRAWN[:10] ** 0.1, [1.0])])[0]
    assert (noisy.kind, still.kind) == ("inconclusive", "unchanged")
    assert "limit 2%; noise between runs " in noisy.reason
    assert ": a history detects effects from " in noisy.reason
    assert "`gpubench ab` gives a definite answer" in noisy.reason
    kinds = [judged(10, 1.01**step).kind for step in range(1, 11)]
    assert kinds[0] == "inconclusive"
    assert "regressed" in kinds


def test_fewer_than_ten_earlier_runs_say_nothing():
    """The reason has their number and the way to know, also for values that never vary."""
    verdict = judged(9, 2.0)
    assert (verdict.kind, verdict.launches) == ("inconclusive", 9)
    medians = f"medians {np.median(DRAWN[:9]) * 1000:.1f} ms and 2.000 s: 101% slower"
    assert mentions(verdict.reason, "9 earlier runs: at least 10 ", "`gpubench ab`", medians)
    assert (verdict.base, verdict.head) == (np.median(DRAWN[:9]), 2.0)
    assert verdict.effect == pytest.approx(2.0 / verdict.base - 1)
    assert verdict.interval is None
    zeros = history.judge_history([series([0.0] * 3, [0.0], metric="peak_memory_bytes")])[0]
    assert (zeros.kind, zeros.effect) == ("inconclusive", None)
    assert history.judge_history([series([512.0] * 9, [600.0])])[0].kind == "inconclusive"
    lacking = [
        history.judge_history([replace(series(DRAWN[:count], [1.0]), pinned=pinned)])[0]
        for count, pinned in ((1, 1), (4, 1), (10, 10))
    ]
    assert [one.runs_needed for one in lacking] == [9, 6, None]


@pytest.mark.parametrize("head", [0.0, -1.0, math.nan])
def test_a_head_without_a_logarithm_is_an_error(head):
    """Never a crash."""
    assert judged(10, head).kind == "errored"


def test_values_without_any_variance_are_compared_exactly():
    """Zeros included; earlier values that are none are no samples, and that is said."""
    memory = [series([512.0] * 10, [value], metric="peak_memory_bytes") for value in (512, 600)]
    zeros = [series([0.0] * 10, [value], metric="peak_memory_bytes") for value in (0, 600)]
    verdicts = history.judge_history([*memory, *zeros])
    assert [one.kind for one in verdicts] == ["unchanged", "regressed", "unchanged", "regressed"]
    assert [one.method for one in verdicts] == ["exact"] * 4
    bad = [math.nan, 0.0]
    assert history.judge_history([series([*bad, *DRAWN[:10]], [1.2])])[0].launches == 10
    few = history.judge_history([series([*bad, *DRAWN[:9]], [1.2])])[0]
    assert mentions(few.reason, "9 earlier runs (2 more without a positive value)", "10")


@pytest.mark.parametrize("bad", [1.1, 10.0])
def test_one_bad_pin_of_ten_does_not_hide_a_slowdown(bad):
    """Ten percent at half a percent of noise; the level is that of the other nine."""
    pins = DRAWN[:10] ** 0.5
    pins[4] *= bad
    verdict = history.judge_history([series(pins, [1.1])])[0]
    assert verdict.kind == "regressed"
    assert verdict.base == pytest.approx(1.0, rel=0.005)


def test_a_head_of_fewer_launches_than_the_pins_has_their_noise_added():
    """Pins of three launches vary less than one launch does, and the reason says so."""
    launches = np.exp(0.01 * np.random.default_rng(4).standard_normal((10, 3)))
    pins = series([float(np.median(one)) for one in launches], [1.03])
    of_three = replace(pins, base_launches=tuple(map(tuple, launches)))
    same = replace(of_three, head_launches=((1.02, 1.03, 1.04),))
    one, three = history.judge_history([of_three]), history.judge_history([same])
    assert one[0].smallest_visible_effect > 1.15 * three[0].smallest_visible_effect
    assert ", 1 launch against 3 in earlier runs, which adds noise" in one[0].reason
    assert "launch beside" not in three[0].reason


def pinned(base, number, head):
    return history.judge_history([replace(series(base, [head]), pinned=number)])[0]


def test_the_level_is_that_of_the_pinned_runs_alone():
    """Later ones tell the noise, few of both nothing; without a pinned run the oldest counts."""
    later = 1.3 * DRAWN[2:20]
    verdict = pinned([*DRAWN[:2], *later], 2, 1.3)
    assert (verdict.kind, verdict.launches) == ("regressed", 20)
    assert verdict.base == pytest.approx(math.sqrt(DRAWN[0] * DRAWN[1]))
    said = ("2 pinned and 18 later runs, limit 2%; ", "effects from ", "ten pinned runs", "smaller")
    assert mentions(verdict.reason, *said)
    assert pinned([*DRAWN[:2], *later], 2, 1.0).kind != "regressed"
    few = pinned(DRAWN[:10], 5, 2.0)
    assert few.kind == "inconclusive"
    assert mentions(few.reason, "5 pinned and 5 later runs: 10 pinned", "or 9 later")
    verdict = pinned([0.0, *DRAWN[:15]], 1, 1.0)
    assert (verdict.kind, verdict.base) == ("errored", 0.0)
    verdict = pinned([1.0, *1.3 * DRAWN[1:20]], 0, 1.3)
    assert (verdict.kind, verdict.base) == ("regressed", pytest.approx(1.0))
    assert "20 earlier runs, none pinned; the oldest is the level" in verdict.reason


def test_where_ten_are_pinned_the_larger_noise_counts():
    """That of the pinned runs, of one sitting maybe, or that of later ones; never their level."""
    alone = pinned(DRAWN[:10], 10, 1.1)
    quiet = pinned([*DRAWN[:10], *3.0 * DRAWN[10:20] ** 0.1], 10, 1.1)
    loud = pinned([*DRAWN[:10], *DRAWN[10:20] ** 9], 10, 1.1)
    assert (quiet.interval, quiet.base) == (alone.interval, alone.base)
    assert loud.smallest_visible_effect > 2 * alone.smallest_visible_effect
    assert loud.base == alone.base
    assert "10 earlier runs" in alone.reason
    assert "10 pinned and 10 later runs" in loud.reason
    assert ", with ten pinned runs also smaller ones" not in loud.reason
