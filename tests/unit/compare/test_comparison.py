import subprocess
import sys
from dataclasses import replace

import pytest

from gpubench_plugin.compare.comparison import compare_history, compare_paired, compare_runs
from gpubench_plugin.core.errors import NothingComparable
from tests.support.made import result, run, timed

LIMIT = {"step_time_min_s": "1.1%"}


def test_two_runs_are_compared_by_threshold_and_it_is_said():
    """In a note above the verdicts, which stand in the order of the head."""
    base = run("a", timed(1.0, "test_x"), timed(1.0, "test_y"), timed(1.0, "test_gone"))
    head = run("b", timed(1.0, "test_y"), timed(1.0, "test_new"), timed(1.1, "test_x"))
    comparison = compare_runs(base, head)
    assert (comparison.base, comparison.head) == ("a", "b")
    assert comparison.notes == ("threshold, not statistical",)
    assert [(one.id, one.kind) for one in comparison.verdicts] == [
        ("test_y", "unchanged"),
        ("test_new", "new"),
        ("test_x", "regressed"),
        ("test_gone", "removed"),
    ]
    assert comparison.count("regressed") == 1
    comparison = compare_runs(run("a", timed(1000)), run("b", timed(1011)), limits=LIMIT)
    assert comparison.verdicts[0].kind == "regressed"


def test_paired_launches_are_judged_by_pairs():
    """The label names how many; one launch that lacks a metric hides nothing of the others."""
    seconds = [1.0, 1.01, 0.99, 1.005, 0.995]
    bases = [run(f"a{n}", timed(s)) for n, s in enumerate(seconds)]
    heads = [run(f"b{n}", timed(1.1 * s)) for n, s in enumerate(seconds)]
    comparison = compare_paired(bases, heads)
    assert comparison.base == "5 runs, a0 to a4"
    assert [(one.kind, one.method) for one in comparison.verdicts] == [("regressed", "paired")]
    bases = [run("a", result(step_time_s=1.0, peak_memory_bytes=100.0)) for _ in range(15)]
    heads = [run("b", result(step_time_s=1.0, peak_memory_bytes=150.0)) for _ in range(14)]
    comparison = compare_paired(bases, [*heads, run("b", timed(1.0))])
    memory = next(one for one in comparison.verdicts if one.metric == "peak_memory_bytes")
    assert (memory.kind, memory.launches) == ("regressed", 14)
    assert any("peak_memory_bytes is judged in 14 of 15 pairs" in note for note in comparison.notes)


def test_a_run_is_compared_with_its_history():
    """A short one is inconclusive, none is no baseline."""
    earlier = [run(f"a{n}", timed(1.0 + n / 1000)) for n in range(12)]
    assert compare_history(earlier, run("b", timed(1.5))).verdicts[0].kind == "regressed"
    assert compare_history(earlier[:9], run("b", timed(1.5))).verdicts[0].kind == "inconclusive"
    comparison = compare_history([], run("b", timed(1.0)))
    assert (comparison.base, comparison.verdicts[0].kind) == ("nothing", "no_baseline")
    earlier = [run(f"a{n}", timed(1.0 + n / 1000)) for n in range(10)]
    earlier += [run(f"b{n}", _flagged(timed(1.0), "throttled")) for n in range(2)]
    assert compare_history(earlier, run("c", timed(1.5))).verdicts[0].kind == "regressed"
    pins = [of_launches(f"a{n}", [1.0 + n / 1000, 1.01, 0.99 - n / 1000]) for n in range(10)]
    one, three = (
        compare_history(pins, of_launches("head", seconds)).verdicts[0]
        for seconds in ([1.0], [1.0, 1.001, 0.999])
    )
    assert "1 launch against 3 in earlier runs, which adds noise" in one.reason
    assert "in earlier runs, which adds noise" not in three.reason
    assert one.smallest_visible_effect > three.smallest_visible_effect


@pytest.mark.parametrize(
    ("base", "head"),
    [(run("a", timed(1.0, "test_x")), run("b", timed(1.0, "test_y"))), (run("a"), run("b"))],
)
def test_runs_with_nothing_in_common_cannot_be_compared(base, head):
    """The message has both and what they hold."""
    with pytest.raises(NothingComparable, match=r"in common: a has [01], b has [01]"):
        compare_runs(base, head)
    with pytest.raises(NothingComparable):
        compare_paired([base], [head])


def test_what_is_broken_or_incomparable_is_still_a_comparison():
    """Its verdicts say more than an error would; options reach the matching."""
    base, head = (run(v, timed(1.0), machine={"x": v}) for v in "ab")
    assert compare_runs(base, head).verdicts[0].kind == "incomparable"
    broken = run("b", result(outcome="crashed"))
    assert compare_runs(base, broken).verdicts[0].kind == "errored"
    base, head = run("a", result(rounds=1.0)), run("b", result(step_time_s=1.0))
    with pytest.raises(NothingComparable, match="no benchmark or metric in common"):
        compare_runs(base, head)
    base, head = (run(v, timed(t), machine={"x": v}) for v, t in (("a", 1.0), ("b", 1.05)))
    allowed = compare_runs(base, head, allow_incomparable=True)
    assert allowed.verdicts[0].kind == "regressed"
    assert len(allowed.notes) == 2
    exempt = compare_runs(base, head, exempt=["x"], limits={"step_time_min_s": "8%"})
    assert exempt.verdicts[0].kind == "unchanged"
    assert len(exempt.environment_differences) == 1


@pytest.mark.slow
def test_comparing_two_runs_imports_nothing_heavy():
    """Neither torch nor what only statistics need."""
    heavy = {"torch", "numpy", "scipy", "pydantic", "yaml", "ruptures"}
    code = (
        "import sys, gpubench_plugin.compare.comparison, gpubench_plugin.baselines.trend;"
        f"print(sorted({heavy!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def _flagged(one, *flags):
    return replace(one, flags=flags)


def test_pairs_are_judged_in_spite_of_doubts():
    """The verdict has those of most launches of a side, and its reason ends with them."""

    def runs(label, doubtful):
        flags = [("throttled",) if n < doubtful else () for n in range(5)]
        return [run(f"{label}{n}", _flagged(timed(1.0), *flags[n])) for n in range(5)]

    def judged(base, head):
        (verdict,) = compare_paired(runs("a", base), runs("b", head), unchanged_from=5).verdicts
        assert verdict.kind == "unchanged"
        assert verdict.reason.endswith(f"; in doubt: {verdict.doubts}") is bool(verdict.doubts)
        return verdict.doubts

    assert [judged(2, 2), judged(0, 3), judged(3, 1), judged(5, 5)] == [
        "",
        "throttled (head)",
        "throttled (base)",
        "throttled (base, head)",
    ]


def of_launches(label, seconds):
    middle = sorted(seconds)[len(seconds) // 2]
    launches = [{"step_time_min_s": one} for one in seconds]
    return run(label, result("test_x", launches=launches, step_time_min_s=middle))
