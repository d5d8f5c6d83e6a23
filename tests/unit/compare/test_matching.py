from dataclasses import replace

import pytest

from gpubench_plugin.compare.matching import WINDOW, match
from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.core.quality_flags import UNFINISHED
from gpubench_plugin.core.verdicts import FactDifference
from tests.support.made import result, run, timed
from tests.support.messages import mentions


def unpaired(bases, heads, **options):
    return match(bases, heads, paired=False, **options)


def kinds(matched):
    return {(one.id, one.metric): one.kind for one in matched.verdicts}


def test_benchmarks_on_both_sides_become_series_with_a_limit():
    """One per gated metric, with unit, direction and the values of both runs."""
    numbers = {"step_time_s": 2.0, "step_time_min_s": 1.0, "peak_memory_bytes": 512.0}
    matched = unpaired([run("a", result(**numbers))], [run("b", result(**numbers))])
    floor, center, memory = matched.series
    told = (floor.metric, floor.unit, floor.better, floor.limit.text)
    assert told == ("step_time_min_s", "s", "lower", "2%")
    assert (floor.base, floor.head) == ((1.0,), (1.0,))
    assert (center.metric, center.base) == ("step_time_s", (2.0,))
    assert (memory.metric, memory.base) == ("peak_memory_bytes", (512.0,))
    assert (matched.verdicts, matched.notes) == ((), ())


def test_pairs_keep_their_order():
    """As many of each are needed; pairs that lack their base are left out, and that is said."""
    bases = [run(f"a{n}", timed(1.0 + n)) for n in range(3)]
    heads = [run(f"b{n}", timed(2.0 + n)) for n in range(3)]
    (series,) = match(bases, heads, paired=True).series
    assert (series.base, series.head) == ((1.0, 2.0, 3.0), (2.0, 3.0, 4.0))
    with pytest.raises(UsageProblem, match="2 base launches but 1 head launch"):
        match([run("a"), run("b")], [run("c")], paired=True)
    bases = [run("a", timed(1.0)), run("b", result(outcome="crashed")), run("c", timed(3.0))]
    heads = [run(f"b{n}", timed(2.0 + n)) for n in range(3)]
    matched = match(bases, heads, paired=True)
    assert (matched.series[0].base, matched.series[0].head) == ((1.0, 3.0), (2.0, 4.0))
    assert mentions(*matched.notes, "test_a: 1 of 3 pairs are excluded", "one side")


def test_a_benchmark_that_is_new_or_removed_has_its_own_verdict():
    """Removed ones come last, and not where they never were there."""
    base, head = run("a", timed(1.0, "test_old")), run("b", timed(1.0, "test_new"))
    matched = unpaired([base], [head])
    assert kinds(matched) == {("test_new", ""): "new", ("test_old", ""): "removed"}
    base = run("a", result("test_old", outcome="skipped"))
    assert unpaired([base], [run("b")]).verdicts == ()
    pin = run("pin", timed(1.0), timed(1.0, "test_gone"))
    matched = unpaired([pin, run("later", timed(1.0))], [run("b", timed(1.0))])
    assert kinds(matched) == {("test_gone", ""): "removed"}


def turned(better):
    one = timed(1.0)
    metric = replace(one.metrics["step_time_min_s"], better=better)
    return replace(one, metrics={"step_time_min_s": metric})


def vanished(name="test_a"):
    one = result(name, outcome="not_measured", reason="no record")
    return replace(one, flags=(UNFINISHED,))


OK = timed(1.0)
WHOLE = result(step_time_min_s=1.0, peak_memory_bytes=4.0)
FAILED = result(outcome="failed")
IN_MS = result(step_time_min_s=1.0, units={"step_time_min_s": "ms"})
TURNED = "incomparable", "better: lower) in base but (s, better: higher) in head"
NO_PAIR = "no_baseline", "no pair has peak_memory_bytes on both sides"


@pytest.mark.parametrize(
    ("bases", "heads", "kind", "said"),
    [
        *(
            ([OK], [result(outcome=o, reason="it broke\nand more")], "errored", f"{o}: it broke")
            for o in ("failed", "misconfigured", "oom", "hang", "crashed")
        ),
        *(
            ([OK], [result(outcome=outcome)], "not_measured", outcome.replace("_", " "))
            for outcome in ("skipped", "unsupported", "not_measured")
        ),
        ([OK] * 3, [OK, result(outcome="hang"), OK], "errored", "hang in 1 of 3 launches"),
        ([OK] * 3, [OK, vanished(), OK], "errored", "no record in 1 of 3 launches"),
        ([OK, None], [None, OK], "no_baseline", "no pair measured it on both sides"),
        ([result(outcome="oom", reason="3 GiB")], [OK], "no_baseline", "failed to measure it: oom"),
        ([replace(FAILED, foreign=True, reason="mean inf")], [OK], "errored", "failed: mean inf"),
        ([OK, replace(OK, settings={"a": 2})], [OK, OK], "incomparable", "a 2 in base, absent in"),
        ([IN_MS], [OK], "incomparable", "(ms, better: lower) in base but (s, better: lower)"),
        ([turned("lower"), OK, OK], [turned("higher")] * 3, *TURNED),
        ([OK, OK], [turned("higher"), OK], "incomparable", "higher) in an earlier head but (s,"),
        ([WHOLE, OK], [OK, WHOLE], *NO_PAIR),
        ([WHOLE, FAILED], [OK, WHOLE], *NO_PAIR),
        ([WHOLE, OK], [OK, OK], "removed", "only the base has peak_memory_bytes"),
    ],
)
def test_pairs_without_a_series_have_one_verdict_with_its_reason(bases, heads, kind, said):
    """Of launches beside each other; a missing one is of a run without the benchmark."""
    sides = [[run("a", *filter(None, [one])) for one in side] for side in (bases, heads)]
    (verdict,) = match(*sides, paired=True).verdicts
    assert verdict.kind == kind
    assert said in verdict.reason
    assert "and more" not in verdict.reason  # only the first line


def test_reasons_of_a_history():
    """What turned, broke, was never told of or has nothing to judge has a reason."""
    earlier = [run("a", turned(better)) for better in ("lower", "higher", "higher")]
    (verdict,) = unpaired(earlier, [run("b", turned("higher"))]).verdicts
    assert (verdict.kind, TURNED[1] in verdict.reason) == ("incomparable", True)
    head = run("b", result(outcome="failed", reason="x" * 1000))
    (verdict,) = unpaired([run("a", OK)], [head]).verdicts
    assert len(verdict.reason) < 200
    matched = unpaired([], [run("b", timed(1.0), timed(1.0, "test_b"))])
    assert kinds(matched) == {("test_a", ""): "no_baseline", ("test_b", ""): "no_baseline"}
    base = run("a", timed(1.0), result("test_b", outcome="skipped"))
    matched = unpaired([base], [run("b", vanished(), vanished("test_b"), vanished("test_c"))])
    assert kinds(matched) == {
        ("test_a", ""): "errored",
        ("test_b", ""): "not_measured",
        ("test_c", ""): "not_measured",
    }
    assert matched.verdicts[0].reason == "not measured: no record"
    head = run("b", result(rounds=3.0))
    (verdict,) = unpaired([run("a", result(rounds=3.0))], [head]).verdicts
    assert (verdict.metric, verdict.kind) == ("step_time_s", "not_measured")
    assert verdict.reason == "it has no metrics to judge"


def test_a_machine_that_differs_is_incomparable_with_the_keys():
    """With both values, unless it is allowed or under comparison; settings cost one benchmark."""
    base, head = (run(v, timed(1.0), machine={"cpu.model": v}) for v in "AB")
    matched = unpaired([base], [head])
    assert matched.series == ()
    assert matched.verdicts[0].kind == "incomparable"
    assert matched.verdicts[0].reason == "cpu.model A in base, B in head"
    assert matched.environment_differences == (FactDifference(key="cpu.model", base="A", head="B"),)
    base, head = (run(v, timed(1.0), machine={"cpu.model": v}) for v in "AB")
    matched = unpaired([base], [head], allow_incomparable=True)
    assert len(matched.series) == 1
    said = ("although incomparable (test_a)", "cpu.model A in base, B in head")
    assert mentions(*matched.notes, *said)
    base, head = (run(v, timed(1.0), machine={"torch.version": v}) for v in "12")
    assert len(unpaired([base], [head], exempt=["torch."]).series) == 1
    base = run("a", result("test_a", settings={"model.depth": 1}), timed(1.0, "test_b"))
    head = run("b", result("test_a", settings={"model.depth": 2}), timed(1.0, "test_b"))
    matched = unpaired([base], [head])
    assert [one.id for one in matched.series] == ["test_b"]
    assert kinds(matched) == {("test_a", ""): "incomparable"}


def test_incomparable_earlier_runs_are_no_samples():
    """They are counted in a note; the first twenty of the others are the samples."""
    earlier = [run("a", timed(float(n)), machine={"cpu.model": "ABB"[n]}) for n in range(3)]
    fits = unpaired(earlier, [run("b", timed(9.0), machine={"cpu.model": "B"})])
    assert fits.series[0].base == (1.0, 2.0)
    (verdict,) = unpaired(earlier, [run("b", timed(9.0), machine={"cpu.model": "C"})]).verdicts
    assert (verdict.kind, verdict.reason) == ("incomparable", "cpu.model B in base, C in head")
    both = (timed(1.0), timed(1.0, "test_b"))
    earlier = [run("a", *both, machine={"cpu.model": "AAB"[n]}) for n in range(3)]
    why = "cpu.model A in base, B in head"
    matched = unpaired(earlier, [run("b", *both, machine={"cpu.model": "B"})])
    assert mentions(*matched.notes, "2 earlier runs ", "excluded (2 benchmarks)", why)
    matched = unpaired(earlier[1:], [run("b", timed(1.0), machine={"cpu.model": "B"})])
    assert mentions(*matched.notes, "1 earlier run ", "excluded (test_a)", why)
    earlier = [run("a", timed(float(n + 1))) for n in range(30)]
    (series,) = unpaired(earlier, [run("b", timed(1.0))]).series
    assert series.base == tuple(float(n + 1) for n in range(WINDOW))


def test_a_fixed_bound_needs_no_base():
    """It is judged on each launch of the head, whatever the base beside it has."""
    head = run("b", result(step_time_s=1.0, limits={"step_time_s": "<=2"}), machine={"x": 1})
    for bases in ([], [run("a")], [run("a", timed(1.0), machine={"x": 2})]):
        matched = unpaired(bases, [head])
        assert [(one.metric, one.base) for one in matched.series] == [("step_time_s", ())]
        assert len(matched.verdicts) == 1
    whole = result(step_time_min_s=1.0, peak_memory_bytes=4.0, limits={"peak_memory_bytes": "<=1"})
    bases = [run("a", whole)] + [run("a", timed(1.0))] * 4
    found = match(bases, [run("b", whole)] * 5, paired=True, limits_from="head").series
    assert {one.metric: len(one.head) for one in found}["peak_memory_bytes"] == 5
    failed = result(outcome="failed")
    bases = [run("a", one) for one in (*[failed] * 4, timed(0.01))]
    heads = [run("b", timed(value)) for value in (*[1.0] * 4, 0.01)]
    found = match(bases, heads, paired=True, limits={"step_time_min_s": "<=0.25"})
    (series,) = found.series
    assert series.head == (1.0, 1.0, 1.0, 1.0, 0.01)


def test_a_limit_on_a_metric_that_is_not_there_is_not_measured():
    """With the nearest name, or what a known one needs, also where there is no base."""
    head = run("b", result(samples_per_s=1.0, limits={"sample_per_s": "3%"}))
    for bases in ([], [run("a", result(samples_per_s=1.0))]):
        verdict = next(one for one in unpaired(bases, [head]).verdicts if one.metric)
        assert (verdict.kind, verdict.metric) == ("not_measured", "sample_per_s")
        said = ("3% on sample_per_s", "not measure (did you mean 'samples_per_s'?)")
        assert mentions(verdict.reason, *said)
    head = run("b", result(step_time_s=1.0, limits={"step_time_p99_s": "<=2"}))
    (verdict,) = (one for one in unpaired([], [head]).verdicts if one.metric)
    said = ("<=2 on step_time_p99_s", "100 durations; ", "measure.min_rounds or measure.min_time_s")
    assert mentions(verdict.reason, *said)
    numbers = {"variant_eager_rounds": 9.0, "variant_fused_rounds": 9.0, "step_time_s": 1.0}
    head = run("b", result(**numbers, limits={"speed_up": ">=2", "speed_up_fused": ">=2"}))
    reasons = {one.metric: one.reason for one in unpaired([], [head]).verdicts if one.metric}
    assert mentions(reasons["speed_up"], "no conclusion", "slow calls", "; repeat")
    assert "no conclusion" not in reasons["speed_up_fused"]  # of two variants it has no name


def test_limits_of_the_caller_override_those_of_the_head():
    """For every benchmark; of several launches the latest that is stated counts."""
    one = result(step_time_s=1.0, limits={"step_time_s": "3%"})
    (series,) = unpaired([run("a", one)], [run("b", one)], limits={"step_time_s": "7%"}).series
    assert series.limit.text == "7%"
    texts = [{"step_time_min_s": "<=2"}, {"step_time_min_s": "<=1"}, {}]
    heads = [run("b", result(step_time_min_s=3.0, limits=limits)) for limits in texts]
    bases = [run("a", timed(1.0))] * 3
    (series,) = match(bases, heads, paired=True, limits_from="head").series
    assert (series.limit.text, series.head) == ("<=1", (3.0, 3.0, 3.0))
    with pytest.raises(UsageProblem, match=r"gate\.limits\.step_time_min_s: 'much' is not a limit"):
        unpaired([run("a", timed(1.0))], [run("b", timed(1.0))], limits={"step_time_min_s": "much"})


def test_a_metric_that_only_one_side_has_is_said():
    """No baseline where the base lacks it, removed where the head does, or not measured."""
    time, memory = {"step_time_s": 1.0}, {"peak_memory_bytes": 1.0}
    lacks, has = run("a", result(**time)), run("b", result(**time, **memory))
    key = ("test_a", "peak_memory_bytes")
    assert kinds(unpaired([lacks], [has])) == {key: "no_baseline"}
    assert kinds(unpaired([has], [lacks])) == {key: "removed"}
    ours = run("a", result(step_time_s=1.0, peak_memory_bytes=1.0))
    theirs = run("b", result(step_time_s=1.0), foreign=True)
    assert unpaired([ours], [theirs]).verdicts == ()
    base = run("a", result(step_time_min_s=1.0, samples_per_s=1.0, limits={"samples_per_s": "3%"}))
    key = ("test_a", "samples_per_s")
    own = run("b", result(step_time_min_s=1.0, limits={"samples_per_s": "3%"}))
    assert kinds(unpaired([base], [own])) == {key: "not_measured"}
    given = unpaired([base], [run("b", timed(1.0))], limits={"samples_per_s": "3%"})
    assert kinds(given) == {key: "not_measured"}
    assert kinds(unpaired([base], [run("b", timed(1.0))])) == {key: "not_measured"}
    assert len(given.verdicts) == 1


def test_pairs_in_which_a_launch_lacks_the_metric_are_left_out():
    """Only whole pairs count, also where the last launch lacks it; how many is said."""
    memory = {"step_time_min_s": 1.0, "peak_memory_bytes": 5.0}
    bases = [run("a", result(**memory)), run("a", result(step_time_min_s=1.0))]
    heads = [run("b", result(**memory)), run("b", result(**memory))]
    matched = match(bases, heads, paired=True)
    assert [len(one.base) for one in matched.series] == [2, 1]
    assert [len(one.head) for one in matched.series] == [2, 1]
    assert mentions(*matched.notes, "test_a: peak_memory_bytes is judged in 1 of 2 pairs; ")
    whole, lacks = {"step_time_min_s": 1.0, "peak_memory_bytes": 4.0}, {"step_time_min_s": 1.0}
    bases = [run("a", result(**whole)) for _ in range(5)]
    heads = [run("b", result(**whole)) for _ in range(4)] + [run("b", result(**lacks))]
    matched = match(bases, heads, paired=True)
    assert {one.metric: len(one.head) for one in matched.series} == {
        "step_time_min_s": 5,
        "peak_memory_bytes": 4,
    }
    assert matched.verdicts == ()
    (note,) = matched.notes
    assert "peak_memory_bytes is judged in 4 of 5 pairs" in note


def test_differences_of_the_environment_are_those_of_all_pairs():
    """Each once."""
    bases = [run("a", timed(1.0), environment={"hostname": name}) for name in "xyyz"]
    heads = [run("b", timed(1.0), environment={"hostname": "x"}) for _ in range(4)]
    found = match(bases, heads, paired=True).environment_differences
    assert [(one.base, one.head) for one in found] == [("y", "x"), ("z", "x")]


@pytest.mark.parametrize("paired", [True, False])
def test_a_text_that_is_no_limit_costs_its_metric_alone(paired):
    """The reason names key, value and what is allowed; all else is judged."""
    bad = result(step_time_min_s=1.0, peak_memory_bytes=4.0, limits={"step_time_min_s": "banana"})
    base, head = run("a", bad, timed(1.0, "test_b")), run("b", bad, timed(1.0, "test_b"))
    matched = match([base], [head], paired=paired)
    (verdict,) = matched.verdicts
    assert (verdict.id, verdict.metric, verdict.kind) == ("test_a", "step_time_min_s", "errored")
    said = ("gate.limits.step_time_min_s: 'banana'", "allowed: a percentage between 0 and")
    assert mentions(verdict.reason, *said)
    assert [(one.id, one.metric) for one in matched.series] == [
        ("test_a", "peak_memory_bytes"),
        ("test_b", "step_time_min_s"),
    ]
    stated = match([base], [head], paired=paired, limits={"step_time_min_s": "3%"})
    assert stated.verdicts == ()


def test_the_pinned_ones_are_counted_among_the_values():
    """They stand before the others; pairs have no such level; heads give one value each."""
    has, lacks = result(step_time_min_s=1.0, peak_memory_bytes=1.0), timed(1.0)
    pins = [replace(one, pinned=True) for one in (has, lacks, has)]
    bases = [run("a", one) for one in (*pins, has)]
    head = run("b", has)
    counts = {one.metric: (one.pinned, len(one.base)) for one in unpaired(bases, [head]).series}
    assert counts == {"step_time_min_s": (3, 4), "peak_memory_bytes": (2, 3)}
    minimum = replace(pins[1], metrics={}, launches=({"step_time_min_s": 1.0},))
    assert unpaired([run("a", minimum)], [head]).series[0].pinned == 1
    assert {one.pinned for one in match(bases, [head] * 4, paired=True).series} == {None}
    assert {one.pinned for one in unpaired(bases[3:], [head]).series} == {0}
    bases = [run("a", timed(value)) for value in (1.0, 2.0, 3.0)]
    for number in (0, 2):
        one = bases[number].results["test_a"]
        bases[number] = run("a", replace(one, pinned=True))
    (series,) = unpaired(bases, [run("b", timed(1.0))]).series
    assert (series.base, series.level) == ((1.0, 3.0, 2.0), (1.0, 3.0))
    launches = [{"step_time_min_s": seconds} for seconds in (1.0, 2.0, 9.0)]
    head = run("b", result(step_time_min_s=3.0, launches=launches))
    (series,) = unpaired([run("a", timed(1.0))], [head, head]).series
    assert series.head == (2.0, 2.0)
