"""The course of a benchmark over runs: parted where numbers are not comparable."""

from __future__ import annotations

import random

import pytest

from gpubench_plugin.judging.course import courses
from gpubench_plugin.results.registry.rows import Point


def points(values: list[float], fingerprint: str = "a", first: int = 0) -> list[Point]:
    return [
        Point(
            run_id=f"run{number:03}",
            started="",
            commit=f"{number:040x}",
            branch="main",
            value=value,
            unit="s",
            fingerprint=fingerprint,
        )
        for number, value in enumerate(values, start=first)
    ]


def noisy(level: float, count: int, seed: int) -> list[float]:
    chance = random.Random(seed)
    return [level * (1 + chance.gauss(0, 0.004)) for _ in range(count)]


def test_a_new_level_is_named_with_its_size() -> None:
    """Both levels are medians; the run is the first of the new level."""
    (course,) = courses(points([*noisy(1.0, 20, 1), *noisy(1.06, 20, 2)]))
    (change,) = course.changes
    assert change.index == 20
    assert change.point.run_id == "run020"
    assert change.change == pytest.approx(0.06, abs=0.01)


def test_one_level_has_no_change() -> None:
    """Neither has a short course, nor one of zeros."""
    for values in (noisy(1.0, 40, 3), [1.0, 2.0], [0.0] * 20):
        (course,) = courses(points(values))
        assert course.changes == ()


def test_machines_stand_apart_the_latest_last() -> None:
    """A change of the machine is no change of level."""
    parts = (points([1.0] * 10, "a"), points([2.0] * 10, "b", 10), points([1.0], "a", 20))
    found = courses([point for part in parts for point in part])
    assert [(course.fingerprint, len(course.points)) for course in found] == [("b", 10), ("a", 11)]
    assert [course.changes for course in found] == [(), ()]
    assert courses([]) == []
