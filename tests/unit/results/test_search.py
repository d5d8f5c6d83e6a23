"""Tests of looking up earlier runs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.core.errors import ResultsError, UsageProblem
from gpubench_plugin.results.run_directory import RunDirectory, find_run, runs_in

if TYPE_CHECKING:
    from pathlib import Path

OLD = "20260130T120000Z_run_0a1b2c"
MORNING = "20260131T080000Z_run_3d4e5f"
NOON = "20260131T120000Z_big_6a7b8c"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Three runs in two experiments, and a folder that is none."""
    for experiment, run_id in [("resnet", OLD), ("mlp", MORNING), ("mlp", NOON)]:
        RunDirectory.create(tmp_path / "results", experiment, run_id).journal.touch()
    (tmp_path / "results" / "mlp" / "20260201T000000Z_run_ffffff").mkdir()
    return tmp_path / "results"


def test_runs_of_all_experiments_oldest_first(results: Path) -> None:
    """A folder without a journal is no run."""
    assert [run.run_id for run in runs_in(results)] == [OLD, MORNING, NOON]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (NOON, NOON),
        ("20260130", OLD),
        ("20260131T12", NOON),
        (f"mlp/{NOON}", NOON),
        (f"results/mlp/{MORNING}/", MORNING),
        (f"mlp/{NOON}/metrics.jsonl", NOON),
        (f"results/mlp/{MORNING}/metrics.jsonl", MORNING),
    ],
)
def test_run_by_id_beginning_folder_or_file(results: Path, text: str, expected: str) -> None:
    """A run is named by its id, what the id begins with, its folder, or a file in that."""
    assert find_run(results, text, cwd=results.parent).run_id == expected


def test_names_as_seen_from_within(results: Path) -> None:
    """Beside the run its folder's name is enough, in it a file's, elsewhere the whole path."""
    run = results / "mlp" / NOON
    assert find_run(results / "other", str(run), cwd=results).path == run
    assert find_run(results / "other", NOON, cwd=run.parent).path == run
    assert find_run(results / "other", "metrics.jsonl", cwd=run).path == run
    with pytest.raises(UsageProblem, match="mlp is not a run directory"):
        find_run(results, "mlp", cwd=results)
    with pytest.raises(ResultsError, match=r"cannot read x+: File name too long"):
        find_run(results, "x" * 5000, cwd=results)


def test_id_that_another_begins_with_is_not_ambiguous(results: Path) -> None:
    """A whole id means that run, though another id is longer."""
    RunDirectory.create(results, "mlp", f"{NOON}0").journal.touch()
    assert find_run(results, NOON, cwd=results).run_id == NOON


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("20260131", f"2 runs start with '20260131': mlp/{NOON}, mlp/{MORNING}"),
        ("20260131T120000Z_bug", f"starts with '20260131T120000Z_bug' (did you mean '{NOON}'?)"),
        ("nothing", f"latest: mlp/{NOON}, mlp/{MORNING}, resnet/{OLD}"),
        (f"results/mlp/{NOON[:-1]}d", f"no such folder (did you mean '{NOON}'?)"),
        ("", "RUN: empty; allowed: a folder, an id "),
        ("results/mlp", "results/mlp is not a run directory: it has no metrics.jsonl"),
    ],
)
def test_unknown_and_ambiguous_names_are_refused(results: Path, text: str, message: str) -> None:
    """The message names the nearest run or those there are."""
    with pytest.raises(UsageProblem, match=re.escape(message)):
        find_run(results, text, cwd=results.parent)


def test_only_the_latest_are_listed(tmp_path: Path) -> None:
    """Of many runs a message lists the last few; where there is none, it says so."""
    with pytest.raises(UsageProblem, match="; there are none"):
        find_run(tmp_path, "2026", cwd=tmp_path)
    for number in range(7):
        RunDirectory.create(tmp_path, "mlp", f"{number}").journal.touch()
    with pytest.raises(UsageProblem, match="latest: mlp/6, mlp/5, mlp/4, mlp/3, mlp/2 and 2 m"):
        find_run(tmp_path, "x", cwd=tmp_path)
