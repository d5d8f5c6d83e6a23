"""Metrics that a benchmark adds to its own record, and cases too slow for a quick run."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest

import gpubench_plugin
from gpubench_plugin.cli.main import main
from tests.support.projects import InlineProject

if TYPE_CHECKING:
    from tests.support.projects import Run

BENCHMARKS = """
import pytest


def work():
    return sum(range(1000))


def test_own(gpubench):
    calls = []
    gpubench.record("calls_seen", lambda: len(calls), unit="count")
    gpubench.record("depth", 3.5, better="lower")
    gpubench.record("traffic", 2.5, unit="GiB/s", better="higher")
    gpubench.record("hits", lambda: 25, unit="%")
    gpubench(lambda: calls.append(work()))


def test_late(gpubench):
    gpubench(work)
    gpubench.record("depth", 3.5)


def test_twice(gpubench):
    gpubench.record("depth", 3.5)
    gpubench.record("depth", 3.5)


def test_taken(gpubench):
    gpubench.record("step_time_s", 3.5)
    gpubench(work)


def test_unit(gpubench):
    gpubench.record("depth", 3.5, unit="counts")
    gpubench(work)


def test_direction(gpubench):
    gpubench.record("depth", 3.5, better="lowest")
    gpubench(work)


def test_not_finite(gpubench):
    gpubench.record("depth", float("nan"))
    gpubench(work)


def test_name(gpubench):
    gpubench.record("\\x1b[2J", 1.0)
    gpubench(work)


def test_value(gpubench):
    gpubench.record("depth", lambda: None)
    gpubench(work)


def test_curves(gpubench):
    import torch

    for step in range(3):
        gpubench.log(step=step, loss=torch.tensor(1 / (step + 1)))
    gpubench(work, setup=lambda: gpubench.log(step=7, set_up=1))
    gpubench.log(step=9, **{"val/accuracy": float("nan")})


def test_log_in_the_step(gpubench):
    gpubench(lambda: gpubench.log(step=0, loss=1.0))


@pytest.mark.gpubench_full
def test_slow(gpubench):
    gpubench(work)


@pytest.mark.gpubench_full
@pytest.mark.gpubench_set("measure.profile=full")
def test_slow_in_full(gpubench):
    gpubench(work)


@pytest.mark.gpubench_full("bf16")
@pytest.mark.precision("fp32", "bf16")
def test_slow_in_bf16(gpubench, precision):
    gpubench(work)
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One session of all of them."""
    path = tmp_path_factory.mktemp("own") / "project"
    path.mkdir()
    project = InlineProject(path)
    project.write("test_it.py", BENCHMARKS)
    return project.run()


def test_curves_are_in_the_journal_and_the_record(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before and after the measurement and in its setup; ``runs show`` draws them.

    It also prints what the session ended with.
    """
    record = gpubench_plugin.load_run(run.directory)
    points = [
        (event["step"], name, value)
        for event in record.events
        if event["event"] == "log"
        for name, value in event["metrics"].items()
    ]
    assert points[:3] == [(0, "loss", 1.0), (1, "loss", 0.5), (2, "loss", pytest.approx(1 / 3))]
    assert {point[:2] for point in points[3:-1]} == {(7, "set_up")}
    assert points[-1][:2] == (9, "val/accuracy")
    assert math.isnan(points[-1][2])
    where = ("--results-dir", str(run.results), "--registry=none")
    assert main(["runs", "show", record.run_id, *where]) == 0
    shown = capsys.readouterr().out
    *_, at_the_end = run.out.partition("\nbenchmark ")
    assert at_the_end.partition("\nrecorded in")[0] in shown
    table = shown.partition("curves of test_it.py::test_curves")[2]
    assert [line.split()[:5] for line in table.splitlines()[2:4]] == [
        ["log", "loss", "3", "1", "0.3333"],
        ["log", "set_up", str(len(points) - 4), "1", "1"],
    ]
    assert main(["runs", "show", record.run_id, *where, "--format=json"]) == 0
    loss, *_, last = json.loads(capsys.readouterr().out)["curves"]
    assert (loss["name"], loss["steps"], loss["values"][:2]) == ("loss", [0, 1, 2], [1.0, 0.5])
    assert (last["name"], last["values"]) == ("val/accuracy", [None])


def test_logging_within_the_measured_step_is_refused(run: Run) -> None:
    """It would be timed with the step: nothing is measured, and the message says where to log."""
    refused = _benchmark(run, "test_log_in_the_step")
    assert refused["metrics"] == {}
    assert "gpubench.log: called within the step that is measured" in refused["reason"]


def _benchmark(run: Run, name: str) -> dict[str, Any]:
    (found,) = (b for b in run.summary["benchmarks"] if b["name"] == name)
    return dict(found)


def test_a_metric_of_its_own_is_recorded(run: Run) -> None:
    """Value, unit and direction; a function is asked after the timed calls."""
    metrics = _benchmark(run, "test_own")["metrics"]
    assert metrics["depth"] == {"value": 3.5, "unit": "1", "better": "lower"}
    # Multiples of a unit are converted, so that all runs have the same.
    traffic = {"value": 2.5 * 2**30, "unit": "bytes/s", "better": "higher"}
    assert metrics["traffic"] == traffic
    assert metrics["hits"] == {"value": 0.25, "unit": "fraction", "better": "none"}
    calls = metrics["calls_seen"]
    timed = sum(
        sum(line["samples"]["block_calls"])
        for line in run.journal
        if line["event"] == "benchmark" and line["id"].endswith("::test_own")
    )
    assert (calls["unit"], calls["better"]) == ("count", "none")
    assert calls["value"] >= timed + metrics["warmup_iterations"]["value"] > timed > 0


def test_it_stands_in_the_file_of_pytest_benchmark(run: Run) -> None:
    """Beside the other metrics."""
    carried = json.loads((run.directory / "benchmark.json").read_text())["benchmarks"]
    (own,) = (b for b in carried if b["name"] == "test_own")
    assert own["stats"]["depth"] == 3.5


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("late", "gpubench.record('depth') was called after the measurement"),
        ("twice", "gpubench.record('depth') was called twice"),
        ("taken", "gpubench.record('step_time_s'): the name is taken"),
        ("unit", "gpubench.record('depth'): unit: unknown 'counts' (did you mean 'count'?)"),
        ("direction", "gpubench.record('depth'): better: unknown 'lowest' (did you mean 'lower'?)"),
        ("not_finite", "gpubench.record('depth'): value=nan; allowed: a finite number"),
        ("name", r"gpubench.record: '\x1b[2J' is no name of a metric"),
        ("value", "gpubench.record('depth'): value=None; allowed: a finite number"),
    ],
)
def test_a_metric_that_cannot_be_recorded_fails_its_benchmark(
    run: Run, name: str, said: str
) -> None:
    """With the reason, and without numbers."""
    benchmark = _benchmark(run, f"test_{name}")
    assert (benchmark["outcome"], benchmark["metrics"]) == ("failed", {})
    assert said in benchmark["reason"]


def test_what_is_too_slow_for_a_quick_run_is_skipped_with_the_reason(run: Run) -> None:
    """On a CPU it is measured in the profile full, and in the precisions that are not named."""
    slow = {name: outcome for name, outcome in run.outcomes.items() if "slow" in name}
    assert slow == {
        "test_slow": "skipped",
        "test_slow_in_full": "measured",
        "test_slow_in_bf16[fp32]": "measured",
        "test_slow_in_bf16[bf16]": "skipped",
    }
    reason = _benchmark(run, "test_slow")["reason"]
    assert reason == "measured on a CPU only with --measure.profile=full"
