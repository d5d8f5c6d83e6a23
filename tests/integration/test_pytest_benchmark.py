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
OURS, ORDINARY = "test_ours[ws1]", "test_ordinary"


@pytest.fixture
def both(project: Project) -> Project:
    """A project with one of our benchmarks, an ordinary one and an ordinary test."""
    project.write("test_it.py", BOTH)
    return project


def test_json_holds_both_kinds_and_our_metrics_among_the_statistics(both: Project) -> None:
    """--benchmark-json saves ours like the others, with metrics in stats and extra_info."""
    run = both.run("--benchmark-json=saved.json")

    saved = {b["name"]: b for b in json.loads((both.path / "saved.json").read_text())["benchmarks"]}
    assert set(saved) == {OURS, ORDINARY}
    ours = saved[OURS]
    (recorded,) = run.summary["benchmarks"]
    assert ours["params"] == {"world_size": "1"}
    assert ours["stats"]["median"] == recorded["metrics"]["step_time_s"]["value"]
    assert ours["stats"]["samples_per_s"] == recorded["metrics"]["samples_per_s"]["value"]
    assert ours["extra_info"]["metrics"]["step_time_s"] == ours["stats"]["median"]
    assert ours["options"]["timer"] == "perf_counter_ns"
    assert set(ours["stats"]) >= set(saved[ORDINARY]["stats"])


def test_both_views_of_a_stalling_step_have_the_same_numbers(project: Project) -> None:
    """Of calls too short to be timed alone, one in a thousand far longer: no view hides it."""
    project.write(
        "test_it.py",
        """
        import time

        def test_stalls(gpubench):
            calls = iter(range(10**9))
            gpubench(lambda: next(calls) % 1000 == 0 and time.sleep(0.002), samples=1)
        """,
    )

    run = project.run("--benchmark-json=saved.json")

    (recorded,) = run.summary["benchmarks"]
    metrics = {name: metric["value"] for name, metric in recorded["metrics"].items()}
    (saved,) = json.loads((project.path / "saved.json").read_text())["benchmarks"]
    stats = saved["stats"]
    ours = ("step_time_min_s", "step_time_max_s", "step_time_mean_s", "step_time_s")
    theirs = [stats[name] for name in ("min", "max", "mean", "median")]
    assert theirs == [metrics[name] for name in ours]
    assert stats["ops"] == pytest.approx(1 / metrics["step_time_mean_s"])


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


def test_disabled_measuring_calls_the_step_once(project: Project) -> None:
    """With --benchmark-disable the step runs once, and the record says so."""
    project.write(
        "test_it.py",
        """
        def test_x(gpubench):
            calls = []
            result = gpubench(lambda: calls.append(1))
            assert (len(calls), result.outcome) == (1, "not_measured")
        """,
    )

    run = project.run("--benchmark-disable")

    assert run.code == 0, run.out + run.err
    (benchmark,) = run.summary["benchmarks"]
    assert benchmark["outcome"] == "not_measured"
    assert "--benchmark-disable" in benchmark["reason"]


def test_histogram_draws_ours(both: Project) -> None:
    """--benchmark-histogram draws a picture with our benchmark in it."""
    run = both.run("--benchmark-histogram=drawn")

    assert run.code == 0, run.out + run.err
    (drawn,) = both.path.glob("drawn*.svg")
    assert OURS in drawn.read_text()


@pytest.mark.own_process
def test_measurement_of_a_failed_run_is_not_compared_as_good(project: Project) -> None:
    """The run directory's benchmark.json and an autosave hold measured benchmarks only."""
    project.write(
        "test_it.py",
        """
        def test_good(gpubench): gpubench(lambda: None)
        def test_bad(gpubench):
            gpubench(lambda: None)
            assert False
        """,
    )

    run = project.run("--benchmark-autosave")

    (saved,) = (project.path / ".benchmarks").rglob("*.json")
    for file in (saved, run.directory / "benchmark.json"):
        names = [b["name"] for b in json.loads(file.read_text())["benchmarks"]]
        assert names == ["test_good[ws1]"]
