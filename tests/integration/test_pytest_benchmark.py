"""pytest-benchmark's options behave with our benchmarks as with ordinary ones."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.projects import Project

BOTH = """
def test_ours(gpubench):
    gpubench(lambda: sum(range(1000)), samples=4)

def test_ordinary(benchmark):
    benchmark.pedantic(sum, args=(range(1000),), rounds=5)

def test_neither():
    pass
"""
OURS, ORDINARY = "test_ours", "test_ordinary"


@pytest.fixture
def both(project: Project) -> Project:
    """A project with one of our benchmarks, an ordinary one and an ordinary test."""
    project.write("test_it.py", BOTH)
    return project


def test_json_holds_both_kinds_and_our_metrics_among_the_statistics(both: Project) -> None:
    """--benchmark-json saves ours like the others, with metrics in stats."""
    run = both.run("--benchmark-json=saved.json")

    saved = {b["name"]: b for b in json.loads((both.path / "saved.json").read_text())["benchmarks"]}
    assert set(saved) == {OURS, ORDINARY}
    ours = saved[OURS]
    (recorded,) = run.summary["benchmarks"]
    assert ours["params"] == {"world_size": "1"}
    assert ours["stats"]["median"] == recorded["metrics"]["step_time_s"]["value"]
    assert ours["stats"]["samples_per_s"] == recorded["metrics"]["samples_per_s"]["value"]
    assert ours["options"]["timer"] == "perf_counter_ns"
    assert set(ours["stats"]) >= set(saved[ORDINARY]["stats"])


def test_autosaved_run_is_compared_with_the_next(both: Project) -> None:
    """A second run with --benchmark-compare shows both runs of both kinds in one table."""
    both.run("--benchmark-autosave")

    run = both.run("--benchmark-compare", "--benchmark-columns=median,rounds")

    assert run.code == 0, run.out + run.err
    assert "Comparing against benchmarks from" in run.out + run.err
    assert f"{OURS} (0001_" in run.out
    assert f"{OURS} (NOW)" in run.out
    assert "Median" in run.out
    assert "StdDev" not in run.out


@pytest.mark.exhaustive
@pytest.mark.own_process
def test_compare_fail_fails_the_session(both: Project) -> None:
    """A regression by --benchmark-compare-fail ends the session with an error, as ever."""
    both.run("--benchmark-save=base")
    (saved,) = (both.path / ".benchmarks").rglob("*_base.json")
    content = json.loads(saved.read_text())
    for benchmark in content["benchmarks"]:
        benchmark["stats"]["median"] /= 100
    saved.write_text(json.dumps(content))

    run = both.run("--benchmark-compare=0001", "--benchmark-compare-fail=median:50%")

    assert run.code != 0
    assert OURS in run.out + run.err
    assert "Performance has regressed" in run.out + run.err
    assert run.out.index("= gpubench =") < run.out.index("recorded in")


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("--benchmark-only", {OURS: "passed", ORDINARY: "passed", "test_neither": "skipped"}),
        ("--benchmark-skip", {OURS: "skipped", ORDINARY: "skipped", "test_neither": "passed"}),
        ("--benchmark-disable", {OURS: "passed", ORDINARY: "passed", "test_neither": "passed"}),
    ],
)
def test_only_skip_and_disable_treat_ours_as_benchmarks(
    both: Project, option: str, expected: dict[str, str]
) -> None:
    """Our fixture counts as pytest-benchmark's."""
    run = both.run(option, "-rA", "-v")

    for name, outcome in expected.items():
        assert f"{name} {outcome.upper()}" in run.out


def test_histogram_draws_ours(both: Project) -> None:
    """--benchmark-histogram draws a picture with our benchmark in it."""
    run = both.run("--benchmark-histogram=drawn")

    assert run.code == 0, run.out + run.err
    (drawn,) = both.path.glob("drawn*.svg")
    assert OURS in drawn.read_text()
