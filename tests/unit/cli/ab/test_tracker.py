"""Which benchmarks are decided, and which go on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from gpubench_plugin.cli.ab.tracker import Tracker, next_pairs
from gpubench_plugin.compare.launch_values import LaunchValues
from gpubench_plugin.compare.pairs import judge_pairs
from gpubench_plugin.core.errors import NothingComparable
from gpubench_plugin.core.records import Metric, Result, Run
from gpubench_plugin.core.verdicts import Verdict
from tests.support.messages import mentions


def run(**times: float | str) -> Run:
    """By benchmark a step time, or why it failed."""
    return Run(label="run", results={name: result(name, time) for name, time in times.items()})


def result(name: str, time: float | str) -> Result:
    if isinstance(time, str):
        outcome = "skipped" if time.startswith("skip") else "failed"
        return Result(id=name, outcome=outcome, reason=time)
    metrics = {
        n: Metric(name=n, value=time, unit="s", better="lower")
        for n in ("step_time_s", "step_time_min_s")
    }
    values = {n: m.value for n, m in metrics.items()}
    return Result(
        id=name, outcome="measured", timer="perf_counter", metrics=metrics, launches=(values,)
    )


QUIET = (1.0, 1.001, 0.999, 1.0005, 0.9995)
NOISY = (1.0, 1.2, 0.8, 1.1, 0.9)


def judged_twice() -> Tracker:
    """A clear slowdown beside noise, after two looks."""
    tracker = Tracker(run(slow=1.0, noisy=1.0), run(slow=1.3, noisy=1.0))
    bases = [run(slow=q, noisy=1.0) for q in QUIET]
    heads = [run(slow=1.3, noisy=n) for n in NOISY]
    tracker.judge(bases, heads, unchanged_from=5)
    more = [run(noisy=n) for n in NOISY]
    tracker.judge([*bases, *[run(noisy=1.0)] * 5], [*heads, *more])
    return tracker


def kinds(tracker: Tracker) -> dict[str, str]:
    return {v.id: v.kind for v in tracker.comparison().verdicts}


def test_only_what_is_undecided_goes_on() -> None:
    """A clear slowdown and a clear sameness are final after five pairs, noise is not."""
    tracker = Tracker(run(slow=1.0, same=1.0, noisy=1.0), run(slow=1.3, same=1.0, noisy=1.0))
    bases = [run(slow=q, same=q, noisy=1.0) for q in QUIET]
    heads = [run(slow=1.3, same=1.0, noisy=n) for n in NOISY]
    tracker.judge(bases, heads, unchanged_from=5)
    assert tracker.open == {"noisy"}
    assert tracker.left_out == ["slow", "same"]
    assert (tracker.decided, tracker.suite) == (2, 3)
    assert kinds(tracker) == {"slow": "regressed", "same": "unchanged", "noisy": "inconclusive"}


def test_what_the_sides_are_meant_to_differ_in_is_no_difference() -> None:
    """Neither commits nor changes; versions of packages are, unless they are the variable."""
    facts = [
        {"git.branch": branch, "git.dirty": branch == "work", "packages.numpy": version}
        for branch, version in (("main", "2.3.0"), ("work", "2.4.0"))
    ]
    base, head = (replace(run(slow=1.0), environment=of_side) for of_side in facts)
    differences = Tracker(base, head).environment_differences
    assert [difference.key for difference in differences] == ["packages.numpy"]
    sides = [
        replace(run(a=1.0), machine={"torch.version": version, "cpu.model": "x"})
        for version in ("2.12", "2.13")
    ]
    assert Tracker(*sides).open == set()
    assert kinds(Tracker(*sides)) == {"a": "incomparable"}
    assert Tracker(*sides, exempt=("torch.",)).open == {"a"}
    other = replace(sides[1], machine={**sides[1].machine, "cpu.model": "y"})
    found = Tracker(sides[0], other, exempt=("torch.",))
    assert "cpu.model" in found.comparison().verdicts[0].reason


def test_the_bases_limits_count_unless_the_heads_are_asked_for() -> None:
    """Either way a note names the limit that the head has loosened."""
    base, head = run(slow=1.0), run(slow=1.3)
    loosened = replace(head.results["slow"], limits={"step_time_min_s": "60%"})
    heads = [replace(head, results={"slow": loosened})] * 10
    for side, kind in (("base", "regressed"), ("head", "unchanged")):
        tracker = Tracker(base, heads[0], limits_from=side)
        tracker.judge([run(slow=q) for q in QUIET] * 2, heads)
        assert kinds(tracker) == {"slow": kind}
        (note,) = tracker.comparison().notes
        metrics = "step_time_min_s, step_time_s"
        assert mentions(note, metrics, "from 2% to 60% (slow); ", f"{side}'s counts")


def test_a_final_verdict_stays() -> None:
    """Later looks judge what is open, by all pairs, among as many as there were."""
    tracker = judged_twice()
    assert kinds(tracker) == {"slow": "regressed", "noisy": "inconclusive"}
    (noisy,) = [v for v in tracker.comparison().verdicts if v.id == "noisy"]
    assert noisy.launches == 10
    tracker.stop("the time was over")
    reasons = {v.id: v.reason for v in tracker.comparison().verdicts}
    assert reasons["noisy"].endswith("; the time was over")
    assert "the time" not in reasons["slow"]


def test_the_judge_knows_what_was_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the pairs that it was decided by, the whole suite, and when to call unchanged."""
    known: list[tuple[set[tuple[str, int]], int, int]] = []

    def judge(series: Sequence[LaunchValues], **options: Any) -> list[Verdict]:
        decided = {(one.id, len(one.head)) for one in options["decided_series"]}
        known.append((decided, options["m"], options["unchanged_from"]))
        return judge_pairs(series, **options)

    monkeypatch.setattr("gpubench_plugin.cli.ab.tracker.judge_pairs", judge)
    judged_twice()
    assert known == [(set(), 4, 5), ({("slow", 5)}, 4, 10)]


def test_looking_again_at_the_same_pairs_changes_nothing() -> None:
    """The others stay among as many as at first; the most pairs that anything open needs count."""
    steady = [f"steady_{number}" for number in range(9)]
    alike = run(noisy=1.0, **dict.fromkeys(steady, 1.0))
    tracker = Tracker(alike, alike)
    bases = [run(noisy=1.0, **dict.fromkeys(steady, q)) for q in QUIET]
    heads = [run(noisy=n, **dict.fromkeys(steady, q)) for q, n in zip(QUIET, NOISY, strict=True)]
    tracker.judge(bases, heads, unchanged_from=5)
    first = tracker.comparison()
    assert tracker.open == {"noisy"}
    tracker.judge(bases, heads, unchanged_from=5)
    assert tracker.comparison() == first
    tracker = Tracker(run(a=1.0, b=1.0), run(a=1.0, b=1.0))
    assert tracker.pairs_needed is None
    loud = [1 + 0.3 * (n - 1) for n in NOISY]
    tracker.judge(
        [run(a=1.0, b=1.0)] * 5, [run(a=n, b=m) for n, m in zip(loud, NOISY, strict=True)]
    )
    needed = [v.pairs_needed for v in tracker.comparison().verdicts]
    assert tracker.pairs_needed == max(filter(None, needed))


def test_what_one_side_lacks_does_not_run_again() -> None:
    """New, removed and failing benchmarks are final after the warm-up pair, with their reasons."""
    tracker = Tracker(
        run(gone=1.0, breaks=1.0, mended="was broken", ok=1.0),
        run(breaks="KeyError: 'x'", mended=1.0, ok=1.0, added=1.0),
    )
    assert tracker.open == {"ok"}
    assert tracker.left_out == ["breaks", "mended", "added", "gone"]
    assert kinds(tracker) == {
        "gone": "removed",
        "breaks": "errored",
        "mended": "no_baseline",
        "added": "new",
    }
    assert tracker.measured == {"gone", "breaks", "ok"}
    assert "KeyError" in tracker.comparison().verdicts[0].reason


def test_nothing_in_common_is_said() -> None:
    """Nor is anything launched again: a base without benchmarks cannot be waited for."""
    tracker = Tracker(Run(label="base"), run(added=1.0))
    assert (kinds(tracker), tracker.open) == ({"added": "new"}, set())
    (note,) = tracker.comparison().notes
    assert mentions(note, "nothing to compare: base and head", "no benchmark in common")
    assert Tracker(run(a=1.0), run(a=1.0, added=1.0)).comparison().notes == ()


def test_what_fails_on_the_way_is_errored() -> None:
    """In a later launch of the head; a value that allows no judgement is no failure of it."""
    tracker = Tracker(run(a=1.0, b=1.0), run(a=1.0, b=1.0))
    heads = [run(a="boom" if n == 3 else 1.0, b=1.0) for n in range(5)]
    tracker.judge([run(a=q, b=q) for q in QUIET], heads, unchanged_from=5)
    assert kinds(tracker)["a"] == "errored"
    assert tracker.open == set()
    tracker = Tracker(run(a=1.0), run(a=1.0))
    tracker.judge([run(a=0.0)] * 5, [run(a=1.0)] * 5)
    assert kinds(tracker) == {"a": "errored"}


@pytest.mark.parametrize(
    ("needed", "looked", "pairs"),
    [
        ([], 0, 10),
        ([], 10, None),
        ([5], 0, 5),
        ([40, None, 25], 15, 40),
        ([15, None], 15, None),
        ([None], 5, None),
    ],
)
def test_the_next_pairs_are_those_that_the_reasons_say(
    needed: list[int | None], looked: int, pairs: int | None
) -> None:
    """Before a look those from which on things are unchanged; none where more would not help."""
    undecided = [
        Verdict(id="a", metric="step_time_s", kind="inconclusive", pairs_needed=number, launches=5)
        for number in needed
    ]
    assert next_pairs(undecided, looked=looked, unchanged_from=10) == pairs


def test_pairs_that_lack_a_value_are_made_up_for() -> None:
    """A metric of fewer than five pairs waits for five more; nothing selected is never fine."""
    one = Verdict(id="a", metric="step_time_s", kind="inconclusive", launches=4)
    assert next_pairs([one], looked=5, unchanged_from=5) == 10
    with pytest.raises(NothingComparable, match="no benchmark"):
        Tracker(Run(label="base"), Run(label="head"))
