"""One verdict on the step time of a benchmark: by its floor, its median and its total rate."""

import re
from dataclasses import replace

import numpy as np
import pytest

from gpubench_plugin.compare.comparison import compare_history, compare_paired, compare_runs
from gpubench_plugin.compare.step_time import merge_parts
from gpubench_plugin.core.records import MINIMA, confidence_bounds_of
from gpubench_plugin.core.verdicts import Verdict
from tests.support.made import result, run, series

LAUNCHES = 15


def launch(generator, floor=1.0, median=1.1, mean=1.2, noise=0.003, rate_noise=0.01, **others):
    common = noise * generator.standard_normal()
    own = rate_noise * generator.standard_normal()
    return result(
        step_time_min_s=floor * np.exp(common),
        step_time_s=median * np.exp(common + noise * generator.standard_normal()),
        step_time_mean_s=mean * np.exp(common + own),
        **{"rounds": 20.0, **others},
    )


def compared(pairs=LAUNCHES, **head):
    generator = np.random.default_rng(5)
    bases = [run(f"a{n}", launch(generator)) for n in range(pairs)]
    heads = [run(f"b{n}", launch(generator, **head)) for n in range(pairs)]
    (verdict,) = compare_paired(bases, heads).verdicts
    return verdict


def test_nothing_moved_is_one_verdict_with_three_parts():
    """Each part keeps its limit; a noisy rate decides nothing, and is not called unchanged."""
    verdict = compared()
    assert (verdict.kind, verdict.metric) == ("unchanged", "step_time_min_s")
    assert [(part.metric, part.kind, part.limit) for part in verdict.parts] == [
        ("step_time_min_s", "unchanged", "2%"),
        ("step_time_s", "unchanged", "2%"),
        ("step_time_mean_s", "unchanged", "5%"),
    ]
    assert compared(rate_noise=0.3).kind == "unchanged"
    assert ", not significantly worse (limit 5%)" in compared(rate_noise=0.3).reason


@pytest.mark.parametrize(
    ("head", "moved"),
    [
        ({"median": 3.3, "mean": 2.6}, ("step_time_s", "step_time_mean_s")),
        ({"mean": 2.4}, ("step_time_mean_s",)),
        ({"floor": 1.1}, ("step_time_min_s",)),
    ],
)
def test_what_moved_while_the_rest_stood_has_regressed_and_is_named(head, moved):
    """A tripled median at an equal floor; calls that take long now and then; the floor alone."""
    verdict = compared(**head)
    assert (verdict.kind, verdict.changed_metrics, verdict.metric) == ("regressed", moved, moved[0])
    assert re.match(r"\d+% (slower|higher)", verdict.reason)
    for other in moved[1:]:
        assert re.search(rf"; {other} \d+% higher, regressed \(limit 5%\)", verdict.reason)


def test_a_median_that_is_too_noisy_makes_the_verdict_inconclusive():
    """A floor that stood still does not answer for it."""
    generator = np.random.default_rng(7)
    sides = [
        [
            run("x", launch(generator, median=1.1 * np.exp(0.1 * generator.standard_normal())))
            for _ in range(LAUNCHES)
        ]
        for _ in "ab"
    ]
    (verdict,) = compare_paired(*sides).verdicts
    assert (verdict.kind, verdict.metric) == ("inconclusive", "step_time_s")
    assert verdict.pairs_needed is None or verdict.pairs_needed > LAUNCHES


def test_better_parts_beside_unchanged_ones_have_improved():
    """A worse part outweighs a better one, and a rate that leans is never unchanged."""
    verdict = compared(floor=0.8, median=0.88)
    assert (verdict.kind, verdict.changed_metrics) == (
        "improved",
        ("step_time_min_s", "step_time_s"),
    )
    assert compared(pairs=5, floor=0.8, median=0.88, mean=0.96).kind == "improved"
    verdict = compared(floor=0.8, median=1.4)
    assert (verdict.kind, verdict.changed_metrics) == ("regressed", ("step_time_s",))
    verdict = compared(mean=1.32, rate_noise=0.2)
    assert (verdict.kind, verdict.metric) == ("inconclusive", "step_time_mean_s")
    assert verdict.parts[0].kind == verdict.parts[1].kind == "unchanged"


def test_minima_of_uneven_numbers_of_rounds_are_not_compared():
    """That of fewer rounds is higher for that alone; so a part that the base lacks is left out."""
    verdict = compared(rounds=40.0, floor=0.97)
    assert [part.metric for part in verdict.parts] == ["step_time_s", "step_time_mean_s"]
    assert "minima are not compared: over 20 rounds in base, 40 in head" in verdict.reason
    base = result(step_time_s=1.0)
    head = result(step_time_s=1.0, step_time_min_s=0.9)
    (verdict,) = compare_runs(run("a", base), run("b", head)).verdicts
    assert (verdict.metric, verdict.kind) == ("step_time_s", "unchanged")
    assert verdict.reason.endswith("; the base did not measure step_time_min_s")


@pytest.mark.parametrize("others", [1, 2])
def test_one_earlier_run_of_ten_may_have_taken_other_rounds(others):
    """A second one ends the comparison of minima, and the reason says how many they are."""
    generator = np.random.default_rng(5)
    rounds = [17.0] * others + [40.0] * (10 - others)
    earlier = [run(f"a{n}", launch(generator, rounds=one)) for n, one in enumerate(rounds)]
    pinned = [
        replace(one, results={"test_a": replace(one.results["test_a"], pinned=True)})
        for one in earlier
    ]
    head = run("b", launch(generator, rounds=40.0, floor=1.2, median=1.3))
    (verdict,) = compare_history(pinned, head).verdicts
    assert verdict.kind == "regressed"
    assert ("step_time_min_s" in verdict.changed_metrics) is (others == 1)
    assert ("over 17 rounds in base (2 of 10), 40 in head" in verdict.reason) is (others == 2)


def test_a_single_noisy_rate_does_not_fail_a_threshold():
    """One number beside one other: floor and median decide."""
    base, head = (
        run(name, result(step_time_s=1.0, step_time_min_s=1.0, step_time_mean_s=mean))
        for name, mean in (("a", 1.0), ("b", 2.0))
    )
    (verdict,) = compare_runs(base, head).verdicts
    assert (verdict.kind, verdict.metric) == ("inconclusive", "step_time_mean_s")
    base, head = (
        run(name, result(step_time_s=1.0, step_time_min_s=1.0, step_time_mean_s=mean))
        for name, mean in (("a", 4.0), ("b", 1.0))
    )
    (verdict,) = compare_runs(base, head).verdicts
    assert verdict.kind == "unchanged"


def test_a_rate_alone_shows_neither_that_nothing_changed_nor_that_it_is_better():
    """Where floor and median are too wide, the benchmark is; only a slower rate decides."""
    ends = dict(zip(confidence_bounds_of("step_time_s"), (1.0, 1.2), strict=True))
    minima = {MINIMA[4]: 1.03, MINIMA[8]: 1.0}
    kinds = []
    for mean in (1.0, 0.5, 2.0):
        base, head = (
            run(
                name,
                result(
                    step_time_min_s=scale,
                    step_time_s=1.1 * scale,
                    step_time_mean_s=1.2 * (mean if name == "b" else 1.0),
                    rounds=10.0,
                    **{key: value * scale for key, value in {**minima, **ends}.items()},
                ),
            )
            for name, scale in (("a", 1.0), ("b", 1.015))
        )
        (verdict,) = compare_runs(base, head).verdicts
        kinds.append((verdict.kind, "too wide" in verdict.reason))
    assert kinds == [("inconclusive", True)] * 3


def test_what_is_decided_needs_no_more_pairs():
    """Whatever one of its parts would need; a rate with a stated limit is judged by itself."""
    parts = [replace(series([1.0], [1.0]), part=part) for part in ("floor", "rate")]
    about = {"id": "test_a", "metric": "step_time_s"}
    verdicts = [
        Verdict(**about, kind="regressed"),
        Verdict(**about, kind="inconclusive", pairs_needed=30),
    ]
    (verdict,) = merge_parts(parts, verdicts).values()
    assert (verdict.kind, verdict.pairs_needed) == ("regressed", None)
    generator = np.random.default_rng(5)
    sides = [
        [
            run("x", replace(launch(generator, mean=mean), limits={"step_time_mean_s": "3%"}))
            for _ in range(LAUNCHES)
        ]
        for mean in (1.2, 1.3)
    ]
    step_time, rate = compare_paired(*sides).verdicts
    assert (step_time.kind, len(step_time.parts)) == ("unchanged", 2)
    assert (rate.metric, rate.kind, rate.limit) == ("step_time_mean_s", "regressed", "3%")


@pytest.mark.parametrize(("needed", "told"), [((20, 45), 45), ((20, None), None)])
def test_what_is_open_speaks_by_the_number_that_needs_most_pairs(needed, told):
    """To follow what another one asks for would decide nothing."""
    parts = [
        replace(series([1.0], [1.0], metric=name), part=part)
        for name, part in (("step_time_min_s", "floor"), ("step_time_s", "median"))
    ]
    verdicts = [
        Verdict(id=one.id, metric=one.metric, kind="inconclusive", reason="", pairs_needed=pairs)
        for one, pairs in zip(parts, needed, strict=True)
    ]
    (verdict,) = merge_parts(parts, verdicts).values()
    assert (verdict.metric, verdict.pairs_needed) == ("step_time_s", told)
