"""The course of a benchmark over runs: parted where numbers are not comparable."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.baselines.trend import (
    BenchmarkHistory,
    HistorySource,
    Point,
    benchmark_history,
    trend_segments,
)
from gpubench_plugin.cli.commands.history import history_csv, history_lines
from gpubench_plugin.compare.comparison import compare_history
from gpubench_plugin.compare.matched_metrics import value_of
from gpubench_plugin.core.records import MINIMA, LaunchSample, Metric, Work
from gpubench_plugin.results.reader import RunReader
from gpubench_plugin.results.registry.registry import Registry
from tests.support.runs_builder import MLP, RESNET, measurement, write_run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gpubench_plugin.baselines.trend import TrendSegment


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
    runs = points([*noisy(1.0, 20, 1), *noisy(1.06, 20, 2)])
    doubted = [replace(point, doubts=("contended",)) for point in runs]
    assert trend_segments(doubted)[0].changes == ()
    (course,) = trend_segments([*doubted[:9], *runs[9:]])
    (change,) = course.changes
    assert change.index == 20
    assert change.point.run_id == "run020"
    assert change.change == pytest.approx(0.06, abs=0.01)


@pytest.mark.parametrize(
    ("first_of_new", "dirty", "starts"),
    [(20, False, [20]), (19, False, [19]), (21, False, [21]), (10, False, []), (10, True, [20])],
    ids=["there", "a run earlier", "a run later", "elsewhere", "elsewhere, with changes"],
)
def test_runs_of_one_commit_are_of_one_level(
    first_of_new: int, dirty: bool, starts: list[int]
) -> None:
    """What changes between them is the machine; noise moves a change of the code by a run."""
    runs = points([*noisy(1.0, 20, 1), *noisy(1.06, 20, 2)])
    runs = [
        replace(run, commit=f"{number >= first_of_new:040x}", dirty=dirty)
        for number, run in enumerate(runs)
    ]
    (course,) = trend_segments(runs)
    assert [change.index for change in course.changes or ()] == starts


@pytest.mark.parametrize(("slowdown", "kind"), [(1.0, "unchanged"), (1.2, "regressed")])
def test_history_and_gate_judge_minima_of_as_many_rounds(
    tmp_path: Path, slowdown: float, kind: str
) -> None:
    """Those of 6 rounds are a fifth above those of 400 for that alone, and no level."""
    levels = [*noisy(1.0, 10, 1), *noisy(slowdown, 10, 2)]
    for number, level in enumerate(levels):
        rounds, least = (400, 0.8) if number < 10 else (6, 1.0)
        times = {"step_time_s": 1.1, "step_time_min_s": least, MINIMA[4]: 1.05}
        metrics = {name: (level * time, "s", "lower") for name, time in times.items()}
        counted = {"rounds": (float(rounds), "count", "none")}
        write_run(tmp_path, number, [measurement(metrics={**metrics, **counted})])
    with Registry.of_directories(tmp_path) as registry:
        registry.ingest_all()
        history = benchmark_history(HistorySource(registry), MLP, None, branch="main", limit=20)
        runs = registry.points(MLP, "step_time_s", branch="main")
    (course,) = history.segments
    assert history.metric == MINIMA[4]
    assert [change.index for change in course.changes] == [10] * (kind == "regressed")
    earlier = [replace(r, results={MLP: replace(r.results[MLP], pinned=True)}) for r in runs[:10]]
    verdict = compare_history(earlier, runs[-1]).verdicts[0]
    floor = next(part for part in verdict.parts if part.metric == "step_time_min_s")
    assert (verdict.kind, floor.kind) == (kind, kind)
    assert floor.head == course.points[-1].value


def test_a_history_leaves_no_run_out(tmp_path: Path) -> None:
    """Where one has no typical minimum; another machine's runs choose nothing."""
    for number in range(20):
        rounds = 400 if number < 15 else 6
        times = {"step_time_s": 1.1, "step_time_min_s": 1.0, MINIMA[4]: 1.05}
        if number == 19:
            rounds, times = 2, {"step_time_s": 5.5, "step_time_min_s": 5.0}
        metrics = {name: (time, "s", "lower") for name, time in times.items()}
        counted = {"rounds": (float(rounds), "count", "none")}
        timer = "process_time" if number == 19 else "perf_counter"
        write_run(tmp_path, number, [measurement(metrics={**metrics, **counted})])
        write_run(
            tmp_path, 20 + number, [measurement(RESNET, timer=timer, metrics=metrics | counted)]
        )
    with Registry.of_directories(tmp_path) as registry:
        registry.ingest_all()
        past = HistorySource(registry)
        histories = [
            benchmark_history(past, name, None, branch="main", limit=20) for name in (MLP, RESNET)
        ]
    assert [each and each.metric for each in histories] == ["step_time_s", "step_time_min_s"]
    assert histories[0]
    assert sum(len(course.points) for course in histories[0].segments) == 20


def test_one_level_has_no_change() -> None:
    """Neither has a short course, nor one of zeros."""
    for values in (noisy(1.0, 40, 3), [1.0, 2.0], [0.0] * 20):
        (course,) = trend_segments(points(values))
        assert course.changes == ()


def test_machines_stand_apart_the_latest_last() -> None:
    """A change of the machine is no change of level."""
    parts = (points([1.0] * 10, "a"), points([2.0] * 10, "b", 10), points([1.0], "a", 20))
    found = trend_segments([point for part in parts for point in part])
    assert [(course.fingerprint, len(course.points)) for course in found] == [("b", 10), ("a", 11)]
    assert [course.changes for course in found] == [(), ()]
    assert trend_segments([]) == []


def _courses_of(written: Sequence[Path], results: Path) -> list[TrendSegment]:
    """The courses of the step time over the runs `written` to `results`, none left out."""
    with Registry.of_directories(results) as registry:
        registry.ingest_all()
        return _history_of(registry, "step_time_s")


def _history_of(registry: Registry, metric: str) -> list[TrendSegment]:
    """The courses of the metric over the runs of the main branch."""
    past = HistorySource(registry)
    history = benchmark_history(past, MLP, metric, branch="main", limit=9)
    assert history
    return [*history.segments]


def test_clocks_stand_apart(tmp_path: Path) -> None:
    """Wall time and processor time are no one series."""
    timers = ("perf_counter", "process_time", "perf_counter")
    written = [
        write_run(tmp_path, number, [measurement(timer=timer)])
        for number, timer in enumerate(timers)
    ]
    assert [len(course.points) for course in _courses_of(written, tmp_path)] == [1, 2]


def test_amounts_of_work_stand_apart(tmp_path: Path) -> None:
    """Twice the samples in a call are another series; of unknown ones it is the one before."""
    amounts = [None, Work(samples=8.0), Work(samples=16.0), None, Work(samples=8.0)]
    written = [
        write_run(tmp_path, number, [measurement(work=work)]) for number, work in enumerate(amounts)
    ]
    found = _courses_of(written, tmp_path)
    runs = [[int(point.run_id[-6:]) for point in course.points] for course in found]
    assert runs == [[2, 3], [0, 1, 4]]
    assert [course.work for course in found] == [{"samples": 16.0}, {"samples": 8.0}]
    assert len({course.fingerprint for course in found}) == 1
    history = BenchmarkHistory(benchmark=MLP, metric="step_time_s", segments=tuple(found))
    shown = "\n".join(history_lines([history], 100))
    assert ", series 1 of 2 (fingerprint " in shown
    assert "; samples=16)" in shown

    works = [row.split(",")[-2] for row in history_csv([history]).splitlines()]
    assert works == ["work", *2 * ["samples=16"], *3 * ["samples=8"]]


def test_what_a_training_to_a_target_took_parts_no_course(tmp_path: Path) -> None:
    """Its amounts are a result, not what was asked for."""
    target = {"steps_to_target": (3.0, "count", "lower")}
    for number in range(2):
        made = measurement(work=Work(samples=8.0 + number), metrics=target)
        write_run(tmp_path, number, [made])
    with Registry.of_directories(tmp_path) as registry:
        registry.ingest_all()
        courses = _history_of(registry, "step_time_s")
    assert [len(course.points) for course in courses] == [2]


@pytest.mark.parametrize(
    ("timer", "judged"), [("perf_counter", "step_time_min_s"), ("cuda_events", "step_time_s")]
)
def test_each_step_time_has_its_own_course_and_one_of_them_is_judged(
    tmp_path: Path, timer: str, judged: str
) -> None:
    """Each is the median over launches; a host judges by the least, a device by the median."""
    launches = [{"step_time_s": s + 3.0, "step_time_min_s": s} for s in (1.0, 2.0, 9.0)]
    whole = {"step_time_s": (7.0, "s", "lower"), "step_time_min_s": (1.0, "s", "lower")}
    per_launch = tuple(
        LaunchSample(
            samples=None,
            metrics={n: Metric(name=n, value=v, unit="s") for n, v in one.items()},
            flags=(),
        )
        for one in launches
    )
    made = measurement(timer=timer, metrics=whole, launches=3, per_launch=per_launch)
    directory = write_run(tmp_path, 0, [made])
    with Registry.open("", tmp_path) as registry:
        registry.ingest_all()
        values = {
            name: [(p.value, p.unit) for p in course.points]
            for name in whole
            for course in _history_of(registry, name)
        }
        history = benchmark_history(HistorySource(registry), MLP, None, branch="main", limit=9)
    assert history
    assert history.metric == judged
    assert values == {"step_time_s": [(5.0, "s")], "step_time_min_s": [(2.0, "s")]}
    result = RunReader(directory).run().results[MLP]
    assert {name: [(value_of(result, name), "s")] for name in whole} == values
