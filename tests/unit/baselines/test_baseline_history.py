"""What changes of a baseline lead to, in whatever order they become known."""

from __future__ import annotations

import json
import random
from itertools import permutations
from typing import Any

import pytest
from gpubench_plugin.results.logical_time import time_after

from gpubench_plugin.baselines.model import (
    Acceptance,
    BaselineChange,
    from_text,
    merge,
    previous_baseline,
    replay,
    to_text,
)
from gpubench_plugin.core.errors import ResultsError


def change(minute: int, action: Any, run: str = "run", **more: Any) -> BaselineChange:
    time = f"2026-01-01T00:{minute:02}:00.000000Z"
    usual = {"id": f"{minute}{action}", "branch": None, "runs": (run,)}
    return BaselineChange(**{**usual, "time": time, "action": action, **more})


def any_change(chance: random.Random) -> BaselineChange:
    action = chance.choice(["set", "accept", "accept", "accept", "remove"])
    return change(
        chance.randrange(8),
        action,
        chance.choice("abc"),
        id=chance.choice("xy"),
        benchmark=chance.choice(["t", "u"]) if action == "accept" else "",
        reason="meant" if action == "accept" else "",
        reset_accepted=action == "set" and chance.random() < 0.5,
    )


def test_merging_does_not_depend_on_order_or_number() -> None:
    """It is commutative, associative and idempotent; no change is lost, nor told without cause."""
    chance = random.Random(11)
    for _ in range(200):
        common = [any_change(chance) for _ in range(3)]
        copies = [
            replay("main", [*common, *(any_change(chance) for _ in range(chance.randrange(4)))])
            for _ in range(3)
        ]
        every = {change for copy in copies for change in copy.changes}
        results = set()
        for one, two, three in permutations(copies):
            both = merge(one, two)
            assert both.superseded == merge(two, one).superseded
            assert merge(both.baseline, one).baseline == both.baseline
            assert merge(both.baseline, one).superseded == {}
            results.add(repr(merge(both.baseline, three).baseline))
        assert len(results) == 1
        assert {*replay("main", every).changes} == every
        assert repr(replay("main", every)) in results


def test_what_is_done_to_a_removed_baseline_starts_anew() -> None:
    """An acceptance of it counts for nothing; when it is set again, older levels are gone."""
    changes = [change(1, "set"), change(2, "accept", benchmark="t", reason="r")]
    baseline = replay("main", [*changes, change(3, "remove")])
    assert (baseline.removed, baseline.runs, baseline.acceptances) == (True, (), {})
    late = change(4, "accept", benchmark="t", reason="r")
    assert replay("main", [*baseline.changes, late]).acceptances == {}
    again = replay("main", [*baseline.changes, late, change(5, "set", "new")])
    assert (again.removed, again.runs, again.acceptances) == (False, ("new",), {})
    assert previous_baseline(again) is None
    other = replay("main", [*again.changes, change(6, "set", "newer")])
    assert previous_baseline(other) == again


def test_a_file_of_version_1_is_read_as_it_was_meant() -> None:
    """There every set ended the accepted levels; two copies of it have equal changes."""
    entry = {"branch": None, "benchmark": "", "reason": "", "forced": []}
    times = [f"2026-01-0{day}T00:00:00.000000Z" for day in (1, 2, 3)]
    accepted = {**entry, "benchmark": "t", "reason": "r", "action": "accept", "runs": ["b"]}
    old = {
        "schema_version": 1,
        "name": "main",
        "changed": times[2],
        "removed": False,
        "runs": ["c"],
        "branch": None,
        "acceptances": [],
        "changes": [
            {**entry, "time": times[0], "action": "set", "runs": ["a"]},
            {**accepted, "time": times[1]},
            {**entry, "time": times[2], "action": "set", "runs": ["c"]},
        ],
    }
    baseline = from_text(json.dumps(old), "here")
    assert (baseline.runs, baseline.acceptances) == (("c",), {})
    assert from_text(to_text(baseline), "there") == baseline


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"runs": ["x"]}, "at runs: its changes lead to another value"),
        ({"acceptances": []}, "at acceptances: its changes"),
        ({"removed": True}, "at removed: its changes"),
        ({"changed": "2026-01-09T00:00:00.000000Z"}, "at changed: its changes"),
        (
            {"changes": []},
            ": its changes lead to another value; edit it only with 'gpubench baseline'",
        ),
    ],
)
def test_a_file_that_somebody_wrote_into_is_refused(change: Any, said: str) -> None:
    """What its changes do not lead to would be gone with the next one, without a word."""
    first = BaselineChange(time="2026-01-01T00:00:00Z", action="set", runs=("a",), branch=None)
    then = BaselineChange(
        time="2026-01-02T00:00:00Z",
        action="accept",
        runs=("b",),
        branch=None,
        benchmark="t",
        reason="r",
    )
    document = json.loads(to_text(replay("main", [first, then])))
    with pytest.raises(ResultsError, match=said):
        from_text(json.dumps({**document, **change}), "here")


def test_an_acceptance_names_one_benchmark_and_one_run() -> None:
    """Without them there is nothing to accept."""
    document = json.loads(to_text(replay("main", [change(1, "set")])))
    entry = {**document["changes"][0], "action": "accept"}
    for wrong in ({"runs": []}, {"runs": ["a", "b"], "benchmark": "t"}, {"benchmark": ""}):
        changes = [*document["changes"], {**entry, **wrong}]
        with pytest.raises(ResultsError, match=r"violates the schema at changes\.1"):
            from_text(json.dumps({**document, "changes": changes}), "here")


def test_a_change_is_later_than_what_it_has_seen() -> None:
    """However far behind the clock is; a time that nothing can follow is said."""
    seen = "2026-01-01T00:00:00.000000Z"
    assert time_after("", seen) == seen
    assert time_after(seen, "2025-01-01T00:00:00.000000Z") == "2026-01-01T00:00:00.000001Z"
    for last in ("9999-12-31T23:59:59.999999Z", "9999-99-99T00:00:00Z"):
        with pytest.raises(ResultsError, match="has no successor"):
            time_after(last, seen)


def test_acceptances_are_those_of_the_last_changes() -> None:
    """Each as it was accepted last."""
    changes = [change(1, "set")]
    changes += [change(n, "accept", f"r{n}", benchmark="t", reason=f"{n}") for n in (2, 3)]
    expected = Acceptance(benchmark="t", run="r3", time=changes[2].time, reason="3")
    assert replay("main", reversed(changes)).acceptances == {"t": expected}
