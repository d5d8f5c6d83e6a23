"""The place in the user's code that a verdict or a note names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpubench_plugin.compare.comparison import compare_history, compare_paired, compare_runs
from gpubench_plugin.core.format import quantity
from gpubench_plugin.core.records import Run
from tests.support.made import result, run

UNITS = {"host_syncs": "count", "recompiles": "count"}
OLD = "net.py:3 in forward: x.item()"
MOVED = "net.py:8 in forward: x.item()"
CHANGED = "net.py:3 in forward: changed: s.k == {}"
RESIZED = "net.py:3 in forward: tensor 'x' size mismatch at index 0. expected {}, actual {}"
NEW = "net.py:5 in forward: float(x)"


def of(label: str, syncs: float, *places: str, limit: str = "", name: str = "test_a") -> Run:
    made = result(
        name,
        units=UNITS,
        limits={"host_syncs": limit} if limit else {},
        step_time_s=1.0,
        step_time_min_s=1.0,
        host_syncs=syncs,
    )
    return run(label, replace(made, places={"host_syncs": places} if places else {}))


@pytest.mark.parametrize(
    ("base", "head", "place"),
    [
        ((), (OLD,), OLD),
        ((OLD,), (MOVED, NEW), NEW),
        ((OLD,), (MOVED, MOVED), MOVED),
        ((CHANGED.format(6713),), (CHANGED.format(-0.5), NEW), NEW),
        ((RESIZED.format(3, 4),), (RESIZED.format(4, 20), NEW), NEW),
    ],
)
def test_a_broken_limit_names_the_first_new_place(
    base: tuple[str, ...], head: tuple[str, ...], place: str
) -> None:
    """The first that the base has not, on whatever line; else the head's first."""
    before = of("base", len(base), *base, limit="<=0")
    comparison = compare_runs(before, of("head", len(head), *head, limit="<=0"))
    verdict = next(v for v in comparison.verdicts if v.metric == "host_syncs")
    assert (verdict.kind, verdict.method) == ("regressed", "absolute")
    assert verdict.reason.endswith(f"; first in {place}")
    assert not any(place in note for note in comparison.notes)


def test_more_than_before_without_a_limit_is_a_note() -> None:
    """With both numbers and the place; nothing where there are as many, or fewer."""
    comparison = compare_runs(of("base", 1, OLD), of("head", 3, MOVED, NEW))
    assert f"test_a: host_syncs was 1, is 3, first in {NEW}" in comparison.notes
    for syncs in (1, 0):
        notes = compare_runs(of("base", 1, OLD), of("head", syncs, NEW)).notes
        assert not any("host_syncs" in note for note in notes)


def test_a_count_from_none_is_judged_exactly_in_every_way() -> None:
    """By a percentage as well: more than none is a regression, none instead improved."""
    for before, now, kind in ((0.0, 3.0, "regressed"), (3.0, 0.0, "improved")):
        bases = [of(f"base {n}", before, limit="2%") for n in range(10)]
        heads = [of(f"head {n}", now, NEW, limit="2%") for n in range(10)]
        for comparison in (
            compare_runs(bases[0], heads[0]),
            compare_history(bases, heads[0]),
            compare_paired(bases, heads),
        ):
            verdict = next(v for v in comparison.verdicts if v.metric == "host_syncs")
            assert (verdict.kind, verdict.base, verdict.head) == (kind, before, now)
            assert (verdict.effect, verdict.interval) == (None, None)
            was, is_now = quantity(before, "count"), quantity(now, "count")
            assert f"{was} before, {is_now} now, limit 2%" in verdict.reason


def test_counts_that_vary_around_none_have_no_percentage() -> None:
    """Neither side may then be none: an absolute bound is advised, and nothing crashes."""
    for before, now in (([0.0, 1.0], [3.0, 3.0]), ([1.0, 1.0], [0.0, 1.0])):
        bases = [of(f"base {n}", before[n % 2], limit="2%") for n in range(10)]
        heads = [of(f"head {n}", now[n % 2], limit="2%") for n in range(10)]
        verdicts = compare_paired(bases, heads).verdicts
        verdict = next(v for v in verdicts if v.metric == "host_syncs")
        assert verdict.kind == "errored"
        assert "use an absolute bound" in verdict.reason
