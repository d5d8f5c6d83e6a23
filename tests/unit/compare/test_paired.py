import math

import numpy as np
import pytest

from gpubench_plugin.compare import looks
from gpubench_plugin.compare.pairs import judge_pairs
from gpubench_plugin.core.format import quantity
from tests.support.made import series

NOISE = np.random.default_rng(5).standard_normal((40, 2, 20))


NOISE_OF_PAIRS = np.exp(0.03 * NOISE[0, :, :10])
"""Base and head of ten pairs; a difference of two launches has √2 of the noise of one."""


def launches(pairs, noise, effect, number=0, **options):
    """A series with known noise; its effect is that of the draw plus `effect`."""
    base, head = np.exp(noise * NOISE[number, :, :pairs])
    return series(base, head * (1 + effect), **options)


def judged(*args, **options):
    return judge_pairs([launches(*args, **options)])[0]


@pytest.mark.parametrize("pairs", [5, 10, 15])
def test_a_clear_slowdown_has_regressed_at_every_look(pairs):
    """Five percent at half a percent of noise; effect, interval, pairs, what was visible."""
    verdict = judged(pairs, 0.005, 0.05)
    assert (verdict.kind, verdict.method, verdict.launches) == ("regressed", "paired", pairs)
    assert verdict.effect == pytest.approx(0.05, abs=0.01)
    assert verdict.interval[0] < verdict.effect < verdict.interval[1]
    assert verdict.smallest_visible_effect >= 0.02
    assert verdict.reason.startswith(f"{verdict.effect * 100:.1f}% slower, 99% interval ")
    assert f"{pairs} pairs, limit 2%; effects from " in verdict.reason


def test_kinds_follow_from_effect_limit_and_suite():
    """An effect is that of the geometric means; each series has its own limit and look."""
    verdict = judged(10, 0.01, 0.05)
    assert verdict.head / verdict.base - 1 == pytest.approx(verdict.effect)
    verdict = judged(10, 0.005, -0.05)
    assert (verdict.kind, verdict.effect < -0.02) == ("improved", True)
    assert "faster" in verdict.reason
    verdict = judged(10, 0.005, 0.0)
    assert (verdict.kind, verdict.interval[1] < 0.02) == ("unchanged", True)
    alone = launches(5, 0.01, 0.05)
    assert judge_pairs([alone])[0].kind == "regressed"
    assert judge_pairs([alone], m=100_000)[0].kind == "inconclusive"
    tight, wide = launches(15, 0.005, 0.05), launches(15, 0.005, 0.05, limit="8%")
    assert [one.kind for one in judge_pairs([tight, wide])] == ["regressed", "unchanged"]
    mixed = [launches(pairs, 0.005, 0.05, pairs) for pairs in (15, 3, 5)]
    assert [one.launches for one in judge_pairs(mixed)] == [15, 3, 5]
    assert judge_pairs([]) == []


def test_unchanged_takes_as_many_pairs_as_are_asked_for():
    """Five that would tell it do not where ten are to."""
    five = [launches(5, 0.002, 0.0)]
    kinds = [judge_pairs(five, unchanged_from=pairs)[0].kind for pairs in (5, 10)]
    assert kinds == ["unchanged", "inconclusive"]


def test_too_much_noise_is_inconclusive_and_says_what_would_decide():
    """Noise, smallest visible effect and pairs needed, unless no sensible number would do."""
    verdict = judged(10, 0.03, 0.03)
    assert verdict.kind == "inconclusive"
    assert verdict.pairs_needed >= 15
    effects = np.log(NOISE_OF_PAIRS[1] / NOISE_OF_PAIRS[0])
    assert f"; launch noise {effects.std(ddof=1) / 2**0.5 * 100:.1f}%: " in verdict.reason
    assert f"about {verdict.pairs_needed} pairs needed" in verdict.reason
    seen = verdict.smallest_visible_effect * 100
    digits = 1 if seen < 9.95 else 0
    assert f"effects from {seen:.{digits}f}% on would be detected" in verdict.reason
    base = [1.0, 1.0] * 5
    head = [1.0199999 * (1.03 if number % 2 else 1 / 1.03) for number in range(10)]
    verdict = judge_pairs([series(base, head)])[0]
    assert (verdict.kind, verdict.pairs_needed) == ("inconclusive", None)
    assert "too close to the limit" in verdict.reason


@pytest.mark.parametrize(
    ("pairs", "used"), [(0, 0), (4, 0), (5, 5), (9, 5), (10, 10), (14, 10), (15, 15), (21, 20)]
)
def test_pairs_between_two_looks_wait_for_the_next(pairs, used):
    """A look is taken after every five of them, however many there are."""
    assert looks.used_pairs(pairs) == used


def test_waiting_pairs_change_no_verdict_and_are_named():
    """Nine pairs are judged as the first five; constants are exact and count for nobody."""
    five, nine = launches(5, 0.005, 0.05), launches(9, 0.005, 0.05)
    wild = series(nine.base, (*nine.head[:5], 9.0, 9.0, 9.0, 9.0))
    first, second = judge_pairs([five])[0], judge_pairs([wild])[0]
    assert (first.effect, first.kind) == (second.effect, second.kind)
    assert "4 more are judged once there are 10" in second.reason
    assert second.launches == 5
    timed = launches(5, 0.01, 0.05)
    still = [
        series([512.0] * 5, [value] * 5, metric="peak_memory_bytes") for value in (512, 520, 600)
    ]
    alone = judge_pairs([timed], unchanged_from=5)[0]
    beside, *exact = judge_pairs([timed, *still], unchanged_from=5)
    assert alone == beside
    assert [(one.kind, one.method) for one in exact] == [
        ("unchanged", "exact"),
        ("unchanged", "exact"),
        ("regressed", "exact"),
    ]
    assert exact[2].reason == "17% higher, limit 2%; no variance: exact comparison"


@pytest.mark.parametrize("pairs", [1, 4])
def test_fewer_than_five_pairs_say_nothing(pairs):
    """Not even values that never vary; but the medians and their effect, without an interval."""
    verdict = judged(pairs, 0.001, 0.5)
    assert (verdict.kind, verdict.launches) == ("inconclusive", pairs)
    medians = f"medians {quantity(verdict.base, 's')} and {quantity(verdict.head, 's')}: 50% slower"
    assert verdict.reason.endswith(f": at least 5 are needed; {medians}")
    assert verdict.effect == pytest.approx(verdict.head / verdict.base - 1)
    assert verdict.interval is None
    still = series([512.0] * pairs, [600.0] * pairs, metric="peak_memory_bytes")
    assert judge_pairs([still])[0].kind == "inconclusive"


@pytest.mark.parametrize(
    ("pairs", "kind", "reason"),
    [
        (5, "inconclusive", "not worse so far, but up to 45% of launches"),
        (10, "unchanged", "limit 2%; no variance: exact comparison; up to 26%"),
    ],
)
def test_what_never_varies_is_unchanged_from_as_many_pairs_as_all_else(pairs, kind, reason):
    """A fifth of launches with twice the memory are not among five pairs in one case of three."""
    still = series([512.0] * pairs, [512.0] * pairs, metric="peak_memory_bytes")
    (verdict,) = judge_pairs([still])
    assert (verdict.kind, verdict.method) == (kind, "exact")
    assert reason in verdict.reason
    assert verdict.pairs_needed == (10 if kind == "inconclusive" else None)


@pytest.mark.parametrize(
    ("base", "head", "said"),
    [
        ([0.0] * 5, [1.0] * 5, "the base's step_time_s is 0"),
        ([1.0] * 5, [1.0, 1.0, 0.0, 1.0, 1.0], "the head's step_time_s is 0"),
        ([1.0, 1.0, -1.0, 1.0, 1.0], [1.0] * 5, "the base's step_time_s is -1"),
        ([0.0, 1.0, 1.0, 1.0, 1.0], [0.0, 1.0, 1.0, 1.0, 1.0], "the base's step_time_s is 0"),
        ([1.0] * 5, [1.0, math.nan, 1.0, 1.0, 1.0], "the head's step_time_s is nan"),
        ([1.0, math.inf, 1.0, 1.0, 1.0], [1.0] * 5, "the base's step_time_s is inf"),
    ],
)
def test_values_without_a_logarithm_are_an_error_with_its_reason(base, head, said):
    """Zeros, negative values and what is no number never crash."""
    verdict = judge_pairs([series(base, head)])[0]
    assert verdict.kind == "errored"
    assert verdict.reason.startswith(said)


def test_values_without_noise_are_judged():
    """Equal differences are sure, zeros equal; a fixed bound needs no five pairs."""
    base = [1.0, 2.0, 4.0, 8.0, 16.0]
    slower = judge_pairs([series(base, [2 * value for value in base])])[0]
    same = judge_pairs([series(base, base)], unchanged_from=5)[0]
    assert (slower.kind, slower.method, slower.effect) == ("regressed", "paired", 1.0)
    assert (same.kind, same.effect, same.reason[:9]) == ("unchanged", 0.0, "no change")
    verdict = judge_pairs([series([1.0] * 5, [1.05, 1.051, 1.049, 1.05, 1.052])])[0]
    assert (verdict.kind, verdict.method) == ("regressed", "paired")
    verdict = judge_pairs([series([1.0], [0.3], limit="<=0.25")])[0]
    assert (verdict.kind, verdict.method) == ("regressed", "absolute")
    verdict = judge_pairs([series([0.0] * 10, [0.0] * 10, metric="peak_memory_bytes")])[0]
    assert (verdict.kind, verdict.method, verdict.effect) == ("unchanged", "exact", 0.0)
    values = [0.0, 1.0, 1.0, 2.0, 1.0]
    verdict = judge_pairs([series(values, values)])[0]
    assert (verdict.kind, verdict.base, verdict.head) == ("errored", 0.0, None)


def test_a_higher_throughput_has_improved():
    """The direction turns effect and words; a quiet series among loud ones names their noise."""
    less = launches(10, 0.005, -0.05, metric="samples_per_s")
    more = launches(10, 0.005, 0.05, metric="samples_per_s")
    down, up = judge_pairs([less, more])
    assert (down.kind, up.kind) == ("regressed", "improved")
    assert (down.effect > 0, up.effect < 0) == (True, True)
    assert down.effect == pytest.approx(1 - down.head / down.base)
    assert ("lower" in down.reason, "higher" in up.reason) == (True, True)
    loud = [launches(5, 0.05, 0.0, number, name=f"test_{number}") for number in range(1, 20)]
    verdict = judge_pairs([launches(5, 0.002, 0.08), *loud])[0]
    assert (verdict.kind, verdict.interval[0] > 0.02) == ("inconclusive", True)
    assert "since the suite is noisier: effects from " in verdict.reason
    assert verdict.pairs_needed == 10


@pytest.mark.parametrize(
    ("base", "head", "limit"),
    [([0.0] * 5, [0.0] * 5, "2%"), ([], [0.0] * 5, "<=0"), ([1.0] * 3, [1.0] * 5, "<=3")],
)
def test_what_was_decided_without_statistics_tells_nothing_of_noise(base, head, limit):
    """Zeros and fixed bounds that an earlier look has decided leave the later looks as they are."""
    going, decided = launches(10, 0.005, 0.05), series(base, head, limit=limit, name="test_b")
    assert judge_pairs([going], decided_series=[decided]) == judge_pairs([going])
