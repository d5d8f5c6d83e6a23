"""The clock and the options that files of pytest-benchmark name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.compare.comparison import compare_runs
from gpubench_plugin.results.sources import load_run

if TYPE_CHECKING:
    from pathlib import Path

    from gpubench_plugin.core.records import Run

OPTIONS: dict[str, Any] = {
    "disable_gc": False,
    "timer": "perf_counter",
    "min_rounds": 5,
    "max_time": 1.0,
    "min_time": 5e-06,
    "precision": None,
    "confidence": None,
    "warmup": False,
}


def file(folder: Path, options: dict[str, Any]) -> Run:
    """The run in a file with one benchmark under these options."""
    entry = {"fullname": "test_a", "options": options, "stats": {"median": 0.5, "min": 0.5}}
    path = folder / "some.json"
    path.write_text(json.dumps({"machine_info": {}, "benchmarks": [entry]}))
    return load_run(str(path), results_dir=folder, cwd=folder)


def reasons(base: Run, head: Run) -> set[str]:
    """Why the two are not comparable, if they are not."""
    return {v.reason for v in compare_runs(base, head).verdicts if v.kind == "incomparable"}


def test_times_of_two_clocks_are_not_comparable(tmp_path: Path) -> None:
    """Processor time is no wall time; the reason names both clocks."""
    wall, cpu = file(tmp_path, OPTIONS), file(tmp_path, {**OPTIONS, "timer": "process_time"})
    other = file(tmp_path, {**OPTIONS, "timer": "monotonic"})
    assert reasons(wall, cpu) == {"timer perf_counter in base, process_time in head"}
    assert reasons(wall, other) == set()


@pytest.mark.parametrize(
    ("changed", "settings"),
    [
        ({}, {}),
        ({"disable_gc": True}, {"disable_gc": True}),
        ({"min_rounds": 9}, {"min_rounds": 9}),
        ({"max_time": 2.5}, {"max_time": 2.5}),
        ({"min_time": 0.1}, {"min_time": 0.1}),
        ({"warmup": 100_000}, {"warmup": True}),
        ({"warmup": 7}, {"warmup": True, "warmup_iterations": 7}),
        ({"precision": 0.02, "confidence": 0.9}, {"precision": 0.02, "confidence": 0.9}),
    ],
)
def test_options_that_are_no_defaults_are_settings(
    tmp_path: Path, changed: dict[str, Any], settings: dict[str, Any]
) -> None:
    """By dot key."""
    result = file(tmp_path, {**OPTIONS, **changed}).results["test_a"]
    assert result.settings == {f"pytest_benchmark.{name}": v for name, v in settings.items()}


def test_other_options_are_not_comparable(tmp_path: Path) -> None:
    """Stated defaults count; what one file does not state is no difference."""
    plain, collected = file(tmp_path, OPTIONS), file(tmp_path, {**OPTIONS, "disable_gc": True})
    silent = file(tmp_path, {})
    expected_differences = {"pytest_benchmark.disable_gc False in base, True in head"}
    assert reasons(plain, collected) == expected_differences
    assert reasons(plain, plain) == reasons(silent, collected) == reasons(plain, silent) == set()


def test_options_of_ours_are_none_of_pytest_benchmark(tmp_path: Path) -> None:
    """They stand in the same place of a file, some by the same name."""
    own_options = {"timer": "cuda_events", "min_rounds": 10, "warmup_iterations": 3}
    result = file(tmp_path, own_options).results["test_a"]
    assert (result.timer, result.settings, result.configuration) == ("cuda_events", {}, {})
