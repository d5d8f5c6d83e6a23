"""Tests of whether launches in pairs were taken in turns."""

import pytest

from gpubench_plugin.compare.comparison import compare_paired
from tests.support.made import result, run, timed
from tests.support.messages import mentions


def taken(order, head=1.0, **more):
    """A comparison of launches that began in `order`, base as A and head as B, an hour apart."""
    sides = {"A": [], "B": []}
    for hour, side in enumerate(order):
        runs = sides[side]
        seconds = (head if side == "B" else 1.0) * (1 + len(runs) / 1000)
        stamps = {"started": f"2026-01-01T{hour:02}:00:00Z", "finished": end(hour, **more)}
        runs.append(run(f"{side.lower()}{len(runs) + 1}", timed(seconds), **stamps))
    return compare_paired(sides["A"], sides["B"])


def end(hour, minutes=30):
    return f"2026-01-01T{hour + minutes // 60:02}:{minutes % 60:02}:00Z"


@pytest.mark.parametrize("order", ["ABABABABAB", "ABBAABBAAB", "BAABABABBA"])
def test_each_pairs_launches_follow_each_other(order):
    """In either order; nothing is said."""
    found = taken(order, head=1.3)
    assert {one.kind for one in found.verdicts} == {"regressed"}
    assert found.notes == ()


@pytest.mark.parametrize(
    ("order", "broken"),
    [
        ("AAAAABBBBB", "a2 started between a1 and b1, which form a pair"),
        ("ABABABAABB", "a5 started between a4 and b4, which form a pair"),
        ("BBAABABABA", "b2 started between b1 and a1, which form a pair"),
    ],
)
def test_other_orders_are_not_judged_as_pairs(order, broken):
    """Whatever the numbers: no effect is claimed, and the reason has what to do."""
    found = taken(order, head=1.3)
    (verdict,) = {one.kind: one for one in found.verdicts}.values()
    assert (verdict.kind, verdict.effect, verdict.interval) == ("inconclusive", None, None)
    assert broken in verdict.reason
    assert verdict.reason.endswith("alternate base and head, or use `gpubench ab`")


def test_what_needs_no_pairs_is_judged_in_any_order():
    """A fixed bound, constants, and launches that do not say when they began, with a note."""
    numbers = {"step_time_min_s": 1.0, "peak_memory_bytes": 5.0}
    limits = {"step_time_min_s": "<=2"}
    sides = [
        [
            run(f"{n}", result(**numbers, limits=limits), started=f"2026-01-{day + n:02}T00:00:00Z")
            for n in range(5)
        ]
        for day in (1, 11)
    ]
    assert {one.method for one in compare_paired(*sides).verdicts} == {"absolute", "exact"}
    bases = [run(f"a{n}", timed(1.0 + n / 1000)) for n in range(5)]
    heads = [run(f"b{n}", timed(1.3 + n / 1000), started="2026-01-01T00:00:00") for n in range(5)]
    found = compare_paired(bases, heads)
    assert {one.kind for one in found.verdicts} == {"regressed"}
    (note,) = found.notes
    assert mentions(note, "cannot be verified", "alternated", "no start time")
    (note,) = taken("ABABABABAB", minutes=61).notes
    assert "b1 started during a1" in note
