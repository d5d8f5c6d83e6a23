"""Alarms of a history: launched again in fresh processes, before a gate fails for them."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.baselines.store import Baselines
from tests.support import paper_clock
from tests.support.projects import Project

if TYPE_CHECKING:
    from pathlib import Path

AT_ONCE = """
from gpubench_plugin.session.gate import confirmation

confirmation._APART_S = 0.0
"""
"""For a conftest.py: the clock of this suite has no slow phases."""

SUITE = """
import os
from paper_clock import spend

AGAIN = "RANK" in os.environ

def step(slow):
    return lambda: spend(1_500_000 if slow and "SLOW" in os.environ else 1_000_000)

def test_once(gpubench):
    gpubench(step(not AGAIN))

def test_always(gpubench):
    gpubench(step(True))

def test_dies(gpubench):
    assert not AGAIN, "no second time"
    gpubench(step(True))

def test_adopted_once(benchmark):
    benchmark.pedantic(step(not AGAIN), rounds=20)

def test_adopted_always(benchmark):
    benchmark.pedantic(step(True), rounds=20)

def test_adopted_dies(benchmark):
    assert not AGAIN, "no second time"
    benchmark.pedantic(step(True), rounds=20)
"""


def pin_ten(project: Project, measured: Path) -> None:
    """A baseline of ten runs that took 1 ms each, and more memory than any session."""
    results = project.path / "results"
    runs = [f"20200101T0000{number:02}Z_run_{number:06x}" for number in range(10)]
    for number, run in enumerate(runs):
        shutil.copytree(measured, results / "default" / run)
        file = results / "default" / run / "summary.json"
        summary = json.loads(file.read_text())
        summary["run_id"] = run
        for benchmark in summary["benchmarks"]:
            for name, metric in benchmark["metrics"].items():
                if name.startswith("step_time_"):
                    metric["value"] = 0.001 * (1 + 0.001 * (number % 4))
                elif name == "peak_memory_bytes":
                    metric["value"] *= 2
        file.write_text(json.dumps(summary))
    Baselines(results).set("main", runs, branch=None)


@pytest.mark.exhaustive
def test_a_gate_fails_only_for_what_further_launches_repeat(tmp_path: Path) -> None:
    """One is slow in this process alone, one always, one cannot be run a second time.

    Adopted tests are launched again like any other, and once in the tables of pytest-benchmark.
    """
    project = Project(tmp_path)
    project.write("test_it.py", SUITE)
    project.write("conftest.py", paper_clock.CONFTEST + AT_ONCE)
    paper_clock.write(tmp_path)
    env = {"PYTHONPATH": str(tmp_path), "GITHUB_ACTIONS": ""}
    adopting = ("--adopt", "--benchmark-timer=paper_clock.seconds")
    first = project.run(*adopting, env=env)
    pin_ten(project, first.directory)
    before = {*first.directories}

    file = tmp_path / "benchmark.json"
    options = ("--baseline=main", "--gate", f"--benchmark-json={file}")
    run = project.run(*adopting, *options, env={**env, "SLOW": "1"})

    assert run.code == 1, run.out + run.err
    assert "gate: failed: 3 benchmarks" in run.out
    (made,) = {*run.directories} - before
    assert not list((made / "ranks").glob("*"))
    verdicts = json.loads((made / "verdicts.json").read_text())["benchmarks"]
    reasons = {
        one["id"].removeprefix("test_it.py::"): (one["verdict"], one["reason"])
        for one in verdicts
        if one["metric"].startswith("step_time")
    }
    for once in ("test_once", "test_adopted_once"):
        assert reasons[once][0] in {"unchanged", "inconclusive"}
        assert reasons[once][1].startswith("not confirmed by 3 more launches (1.00")
    for always in ("test_always", "test_adopted_always"):
        assert reasons[always][0] == "regressed"
        assert reasons[always][1].startswith("confirmed by 3 more launches (1.5")
    assert reasons["test_dies"][0] == "regressed"
    said = "relaunched, but without a result: failed (AssertionError: no second time)"
    assert said in reasons["test_dies"][1]
    assert reasons["test_adopted_dies"][0] == "inconclusive"
    assert reasons["test_adopted_dies"][1].startswith("not confirmed: ")
    assert said in reasons["test_adopted_dies"][1]
    summary = json.loads((made / "summary.json").read_text())
    assert len(summary["benchmarks"]) == 6
    results = [each["name"] for each in json.loads(file.read_text())["benchmarks"]]
    assert sorted(results) == sorted({*results})
    assert {one["launches"] for one in summary["benchmarks"]} == {1}
