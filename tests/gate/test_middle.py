"""Several runs as one."""

from __future__ import annotations

from typing import Any

from gpubench_plugin.gate.middle import middle
from gpubench_plugin.records import Metric
from gpubench_plugin.runs import Result, Run

ID = "test_x.py::test_a"


def result(value: float, *launches: float, **fields: Any) -> Result:
    metric = Metric(name="step_time_s", value=value, unit="s", better="lower")
    of_launches = tuple({"step_time_s": v} for v in launches or (value,))
    usual = {"outcome": "measured", "metrics": {"step_time_s": metric}, "launches": of_launches}
    return Result(id=ID, **{**usual, **fields})


def run(one: Result, model: str = "same", label: str = "") -> Run:
    return Run(label=label, machine={"cpu.model": model}, results={ID: one})


HEAD = run(result(1.0))


def test_each_metric_is_the_median_of_the_runs() -> None:
    """Of a run with several launches their median counts."""
    found = middle([run(result(1.0)), run(result(9.0, 2.0, 2.5, 9.0)), run(result(7.0))], HEAD)

    assert found.results[ID].launches == ({"step_time_s": 2.5},)
    assert found.results[ID].metrics["step_time_s"].value == 2.5


def test_runs_of_other_machines_and_settings_do_not_count() -> None:
    """What the head cannot be compared with is left out as long as there is anything else."""
    other = result(5.0, settings={"training.batch_size": 9})

    found = middle([run(result(1.0)), run(other), run(result(7.0), model="other")], HEAD)

    assert found.results[ID].launches == ({"step_time_s": 1.0},)
    assert found.machine == HEAD.machine


def test_the_latest_stands_for_all_where_none_can_be_compared_with() -> None:
    """So that comparing says what differs."""
    found = middle([run(result(1.0), "a", "first"), run(result(7.0), "b", "last")], HEAD)

    assert (found.label, found.machine) == ("last", {"cpu.model": "b"})


def test_a_benchmark_that_no_run_measured_stays_what_it_was() -> None:
    """A failure has no median."""
    failed = Result(id=ID, outcome="failed", reason="broken")

    assert middle([run(failed)], HEAD).results[ID] == failed
