"""Tests of numbers that decide nothing: in doubt, or too wide for the limit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpubench_plugin.compare.comparison import compare_history, compare_runs
from gpubench_plugin.compare.doubt import touching
from gpubench_plugin.core.records import MINIMA, Metric, Result
from gpubench_plugin.core.verdicts import Verdict
from tests.support.made import result, run
from tests.support.messages import mentions

MS = 0.001


def timed(factor: float = 1.0, flags: tuple[str, ...] = (), **metrics: float) -> Result:
    """A step of a millisecond, known to half a percent, with as many factors on each number."""
    numbers = {
        "step_time_min_s": MS * factor,
        "step_time_s": 1.1 * MS * factor,
        "step_time_ci_low_s": 1.095 * MS * factor,
        "step_time_ci_high_s": 1.105 * MS * factor,
        "step_time_mean_s": 1.2 * MS * factor,
        **metrics,
    }
    return replace(result(units={"step_time_mean_s": "s"}, **numbers), flags=flags)


def compared(base: Result, head: Result, **options: Any) -> Verdict:
    (verdict,) = compare_runs(run("a", base), run("b", head), **options).verdicts
    return verdict


@pytest.mark.parametrize("flag", ["throttled", "unsteady", "drifting", "dependent", "instrumented"])
@pytest.mark.parametrize("factor", [0.07, 1.0, 1.5])
def test_a_number_in_doubt_decides_nothing(flag: str, factor: float) -> None:
    """Of a doubt that touches all, on both sides."""
    verdict = compared(timed(flags=(flag,)), timed(factor, (flag,)))
    assert (verdict.kind, verdict.doubts) == ("inconclusive", f"{flag} (base, head)")
    assert verdict.reason.startswith(f"in doubt: {flag} (base, head); ")


@pytest.mark.parametrize(
    ("factor", "kind"), [(1.2, "regressed"), (1.04, "inconclusive"), (0.8, "improved")]
)
def test_clean_minima_decide_beside_medians_and_means_in_doubt(factor: float, kind: str) -> None:
    """So a slowdown of 20% is one, though the medians say that it is 93% faster.

    Beside other processes minima vary by 5% from run to run.
    """
    busy = {"step_time_s": 16 * MS, "step_time_ci_low_s": 9 * MS, "step_time_ci_high_s": 20 * MS}
    verdict = compared(
        timed(flags=("contended",), **busy, step_time_mean_s=20 * MS), timed(factor, ("contended",))
    )
    assert (verdict.kind, verdict.metric, verdict.doubts) == (kind, "step_time_min_s", "")
    doubts = "contended (base, head)"
    assert mentions(verdict.reason, f"step_time_s in doubt: {doubts}; step_time_mean_s in doubt: ")
    assert {part.metric: part.doubts for part in verdict.parts} == {
        "step_time_min_s": "",
        "step_time_s": doubts,
        "step_time_mean_s": doubts,
    }


@pytest.mark.parametrize(
    ("flag", "seconds", "metrics"),
    [
        ("contended", 0.002, {"step_time_s", "step_time_mean_s", "samples_per_s"}),
        (
            "contended",
            0.0021,
            {"step_time_min_s", "step_time_s", "step_time_mean_s", "samples_per_s"},
        ),
        ("suspended", 1.0, {"step_time_mean_s", "samples_per_s"}),
        (
            "drifting",
            0.001,
            {"step_time_min_s", "step_time_s", "step_time_mean_s", "samples_per_s"},
        ),
        ("outliers", 0.001, set()),
    ],
)
def test_a_doubt_touches_some_numbers(flag: str, seconds: float, metrics: set[str]) -> None:
    """The table of docs/evidence/doubts.md; memory and accuracy no doubt of the clock."""
    names = ("step_time_min_s", "step_time_s", "step_time_mean_s", "samples_per_s")
    others = ("peak_memory_bytes", "recall")
    one = result(
        **dict.fromkeys((*names, *others), seconds), units={"recall": "1", "step_time_mean_s": "s"}
    )
    doubted = replace(one, flags=(flag,))
    found = {name for name, m in one.metrics.items() if touching(doubted, m)}
    assert found == metrics
    typical = replace(one.metrics["step_time_min_s"], name=MINIMA[8])
    assert bool(touching(doubted, typical)) is ("step_time_min_s" in metrics)


def test_a_round_of_many_calls_does_not_fit_a_time_slice() -> None:
    """Of an adopted test that says so itself: 0.5 ms of eight calls are 4 ms."""
    one = replace(timed(0.5, ("contended",)), settings={"pytest_benchmark.iterations": 8})
    assert touching(one, one.metrics["step_time_min_s"]) == ("contended",)


@pytest.mark.parametrize(
    ("flags", "seconds", "touched"),
    [
        (("dependent",), 0.001, ("dependent",)),
        (("contended", "dependent"), 0.001, ()),
        (("contended", "dependent"), 0.0021, ("contended", "dependent")),
        (("contended", "drifting", "dependent"), 0.001, ("drifting",)),
    ],
)
def test_the_fastest_of_dependent_calls_did_not_wait(
    flags: tuple[str, ...], seconds: float, touched: tuple[str, ...]
) -> None:
    """Beside other processes, dependence is that of calls that waited and calls that did not."""
    one = replace(result(step_time_min_s=seconds, step_time_s=seconds), flags=flags)
    assert sorted(touching(one, one.metrics["step_time_min_s"])) == sorted(touched)
    assert sorted(touching(one, one.metrics["step_time_s"])) == sorted(flags)


def test_what_is_no_time_is_touched_by_what_changes_everything() -> None:
    """An accuracy on a busy machine is what it is; under a tracer memory is not."""
    recall = Metric(name="recall", value=0.9, unit="1", better="higher")
    tail = Metric(name="tail", value=0.9, unit="ms", better="lower")
    one = replace(result(recall=0.9), flags=("contended", "instrumented"))
    assert touching(one, recall) == ("instrumented",)
    assert touching(one, tail) == ("contended", "instrumented")


@pytest.mark.parametrize(
    ("low", "high", "factor", "kind"),
    [
        (1.199, 1.201, 1.2, "regressed"),
        (1.0, 1.4, 1.2, "inconclusive"),
        (0.999, 1.001, 1.0, "unchanged"),
        (0.95, 1.05, 1.0, "inconclusive"),
        (0.799, 0.801, 0.8, "improved"),
        (0.7, 0.9, 0.8, "improved"),
        (0.96, 1.0, 0.975, "unchanged"),
    ],
)
def test_an_interval_must_be_clear_of_the_limit(
    low: float, high: float, factor: float, kind: str
) -> None:
    """What is not worse for certain, and perhaps better, is unchanged; as for pairs."""
    ends = ("step_time_ci_low_s", "step_time_ci_high_s")
    base = result(step_time_s=1.0, **dict(zip(ends, (1.0, 1.0), strict=True)))
    head = result(step_time_s=factor, **dict(zip(ends, (low, high), strict=True)))
    verdict = compared(base, head)
    assert verdict.kind == kind
    assert ("too wide: " in verdict.reason) is (kind == "inconclusive")
    # The same for a rate, whose better direction is the other one.
    ends = ("samples_ci_low_per_s", "samples_ci_high_per_s")
    base = result(samples_per_s=1.0, **dict(zip(ends, (1.0, 1.0), strict=True)))
    head = result(samples_per_s=1 / factor, **dict(zip(ends, (1 / high, 1 / low), strict=True)))
    rate = compared(base, head, limits={"samples_per_s": "2%"})
    assert rate.kind == kind


def test_both_intervals_count() -> None:
    """Their distances add up as those of independent values; of few rounds the range counts."""
    wide = {"step_time_ci_low_s": 0.985, "step_time_ci_high_s": 1.015}
    base, head = result(step_time_s=1.0, **wide), result(step_time_s=1.0)
    assert compared(base, head).kind == "unchanged"
    assert compared(base, result(step_time_s=1.0, **wide)).kind == "inconclusive"
    few = result(step_time_s=6.0, step_time_min_s=5.9, step_time_max_s=6.2, rounds=5.0)
    verdict = compared(few, few, limits={"step_time_s": "2%", "step_time_min_s": "50%"})
    assert mentions(verdict.reason, "step_time_s no change, inconclusive (limit 2%)")


def test_a_wide_part_leaves_the_verdict_to_the_others_unless_it_reaches_the_limit() -> None:
    """A median that may be 30% slower is no reason for "unchanged"."""
    wide = {"step_time_ci_low_s": MS, "step_time_ci_high_s": 1.21 * MS}
    verdict = compared(timed(**wide), timed(**wide))
    assert (verdict.kind, verdict.metric) == ("unchanged", "step_time_min_s")
    verdict = compared(timed(**wide), timed(**{**wide, "step_time_s": 1.15 * MS}))
    assert (verdict.kind, verdict.metric) == ("inconclusive", "step_time_s")
    assert verdict.reason.startswith("too wide: ")


def test_a_fixed_bound_follows_the_same_rule() -> None:
    """The base does not matter; an interval that holds the bound leaves it open."""
    limits = {"step_time_s": "<=0.002"}
    assert compared(timed(flags=("drifting",)), timed(), limits=limits).kind == "unchanged"
    verdict = compared(timed(), timed(9.0, ("drifting",)), limits=limits)
    assert (verdict.kind, verdict.doubts) == ("inconclusive", "drifting (head)")
    verdict = compared(timed(), timed(step_time_ci_high_s=2.5 * MS), limits=limits)
    assert (verdict.kind, verdict.reason.startswith("too wide: ")) == ("inconclusive", True)


def test_doubts_can_be_allowed() -> None:
    """Then all is judged by its values, and the reason ends with the doubts."""
    head = timed(1.2, ("throttled",), step_time_ci_high_s=9 * MS)
    verdict = compared(timed(), head, allow_doubt=True)
    assert (verdict.kind, verdict.doubts) == ("regressed", "throttled (head)")
    assert verdict.reason.endswith("; in doubt: throttled (head)")


def test_a_history_needs_a_clean_head_and_mostly_clean_runs() -> None:
    """Its noise holds that of some runs in doubt."""

    def kind(flagged: int, *flags: str) -> str:
        earlier = [
            run(f"a{n}", timed(1 + n / 1000, ("drifting",) if n < flagged else ()))
            for n in range(12)
        ]
        return compare_history(earlier, run("b", timed(1.5, flags))).verdicts[0].kind

    assert [kind(0), kind(6), kind(7), kind(0, "drifting"), kind(12, "drifting")] == [
        "regressed",
        "regressed",
        *["inconclusive"] * 3,
    ]


def test_a_level_in_doubt_decides_nothing() -> None:
    """That of the pins, however many clean runs follow; whichever doubts runs have, they add up."""
    pins = [replace(timed(1.3 + n / 1000, ("drifting",)), pinned=True) for n in range(3)]
    later = [timed(1 + n / 1000) for n in range(12)]
    earlier = [run(f"a{n}", one) for n, one in enumerate([*pins, *later])]
    verdict = compare_history(earlier, run("b", timed(0.9))).verdicts[0]
    assert (verdict.kind, verdict.doubts) == ("inconclusive", "drifting (base)")
    flags = ("drifting", "unsteady", "throttled")
    mixed = [run(f"a{n}", timed(1 + n / 1000, (flags[n % 3],))) for n in range(12)]
    verdict = compare_history(mixed, run("b", timed(1.5))).verdicts[0]
    assert verdict.kind == "inconclusive"
    assert verdict.doubts == "throttled (base), unsteady (base), drifting (base)"


def test_few_rounds_decide_only_beyond_their_spread() -> None:
    """A minimum is as uncertain as the median is above it, one round by a tenth.

    Between runs of one round a history knows the noise; a bound is met by the value.
    """

    def of(rounds: int, factor: float = 1.0) -> Result:
        ends = {"step_time_max_s": 1.2 * MS * factor, "rounds": float(rounds)}
        one = timed(factor, **ends)
        return replace(one, metrics={n: m for n, m in one.metrics.items() if "_ci_" not in n})

    for rounds, factor, kind in ((5, 1.08, "inconclusive"), (5, 1.3, "regressed")):
        assert compared(of(rounds), of(rounds, factor)).kind == kind
    for factor, kind in ((1.1, "inconclusive"), (1.3, "regressed")):
        assert compared(of(1), of(1, factor)).kind == kind
    bound = {"step_time_s": "<=0.00112"}
    assert compared(of(1), of(1, 1.03), limits=bound).kind == "regressed"
    earlier = [run(f"a{n}", of(1, 1 + n / 1000)) for n in range(12)]
    assert compare_history(earlier, run("b", of(1, 1.06))).verdicts[0].kind == "regressed"


def test_a_history_of_busy_runs_decides_by_minima_of_as_many_rounds() -> None:
    """What each run's minimum shows the gate finds, too, though fewer rounds were measured."""

    def busy(number: int, factor: float, rounds: int) -> Result:
        spread = 1 + number % 4 / 500
        minima = {name: MS * factor * (1 + 0.02 / n) * spread for n, name in MINIMA.items()}
        low = {"step_time_min_s": MS * factor * spread, "step_time_s": MS * (15 + 9 * spread)}
        return timed(flags=("contended",), rounds=float(rounds), **{**minima, **low})

    earlier = [run(f"a{n}", busy(n, 1.0, 44)) for n in range(12)]
    found = [
        compare_history(earlier, run("b", busy(1, factor, 29))).verdicts[0] for factor in (1.2, 1.0)
    ]
    assert [(v.kind, v.metric) for v in found] == [
        ("regressed", "step_time_min_s"),
        ("unchanged", "step_time_min_s"),
    ]


def test_a_mean_alone_fails_no_history() -> None:
    """Other load of the machine moves it; beside a median it says how much slower the calls are."""
    earlier = [run(f"a{n}", timed(1 + n / 1000)) for n in range(12)]

    def judged(**metrics: float) -> Verdict:
        return compare_history(earlier, run("b", timed(**metrics))).verdicts[0]

    alone = judged(step_time_mean_s=3 * MS)
    assert (alone.kind, alone.metric) == ("inconclusive", "step_time_mean_s")
    assert alone.reason.startswith("a mean alone")
    slower = {
        "step_time_s": 2 * MS,
        "step_time_ci_low_s": 1.9 * MS,
        "step_time_ci_high_s": 2.1 * MS,
    }
    assert judged(step_time_mean_s=3 * MS, **slower).kind == "regressed"
    verdict = judged(**{**slower, "step_time_ci_low_s": 0.9 * MS})
    assert (verdict.kind, verdict.metric) == ("inconclusive", "step_time_s")
    assert verdict.reason.startswith("too wide: ")


def test_the_cheapest_next_command_is_named() -> None:
    """Pairs where the code of the base is known and another; the id is whole and quoted."""

    def reason(flag: str, **head: Any) -> str:
        sides = [run("a", timed(), commit="1" * 40), run("b", timed(2.0, (flag,)), **head)]
        return compare_runs(*sides).verdicts[0].reason

    other = {"commit": "2" * 40}
    assert reason("throttled", **other).endswith("`gpubench ab --base 111111111 -- test_a` decides")
    assert reason("throttled", **other, foreign=True).endswith("idle machine, or for longer")
    same = {"commit": "1" * 40, "dirty": True}
    assert "gpubench ab --base 111111111" in reason("throttled", **same)
    assert reason("throttled", commit="1" * 40).endswith("idle machine, or for longer")
    wide = timed(step_time_ci_high_s=9 * MS, step_time_s=2 * MS)
    adopted = replace(wide, configuration={"pytest_benchmark.disable_gc": False})
    sides = [run("a", timed(), commit="1" * 40), run("b", adopted, **other)]
    assert (
        "gpubench ab --base 111111111 -- --adopt test_a`" in compare_runs(*sides).verdicts[0].reason
    )
    sides = [run("a", timed(), commit="1" * 40), run("b", wide, **other)]
    assert "gpubench ab --base 111111111" in compare_runs(*sides).verdicts[0].reason


def test_minima_over_unequal_numbers_of_rounds_are_brought_to_equal_ones() -> None:
    """By the typical minima of as many rounds as both have; without them they are left out."""

    def of(rounds: int, *, lowest: float, **more: float) -> Result:
        minima = {name: MS * (1 + 0.02 / n) for n, name in MINIMA.items() if n <= rounds}
        return timed(rounds=float(rounds), step_time_min_s=lowest * MS, **{**minima, **more})

    few, many = of(10, lowest=1.1), of(187, lowest=0.9)
    for sides in ((few, many), (many, few)):
        verdict = compared(*sides)
        assert (verdict.kind, verdict.metric) == ("unchanged", "step_time_min_s")
        assert mentions(verdict.reason, "minima of 8 rounds: over")
        floor = next(part for part in verdict.parts if part.metric == "step_time_min_s")
        assert (floor.base, floor.head) == (MS * 1.0025, MS * 1.0025)
    slower = {name: 1.2 * MS * (1 + 0.02 / n) for n, name in MINIMA.items()}
    assert compared(few, of(187, lowest=0.9, **slower)).kind == "regressed"
    verdict = compared(timed(rounds=10.0), many)
    assert [part.metric for part in verdict.parts] == ["step_time_s", "step_time_mean_s"]


def test_a_minimum_that_still_fell_is_too_wide() -> None:
    """By three times what it fell when the number of rounds was last doubled."""

    def of(fall: float) -> Result:
        minima: dict[str, Any] = {MINIMA[4]: 1 + fall, MINIMA[8]: 1.0}
        return result(step_time_min_s=1.0, rounds=10.0, **minima)

    assert compared(of(0.001), of(0.001)).kind == "unchanged"
    verdict = compared(of(0.01), of(0.01))
    assert (verdict.kind, verdict.reason.startswith("too wide: ")) == ("inconclusive", True)
