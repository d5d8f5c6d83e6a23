"""Keys of measuring and of the gate, from the command line to the record."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.support.projects import InlineProject, Project

if TYPE_CHECKING:
    from tests.support.projects import Run

TESTS = """
import time
import pytest

def test_frozen(gpubench):
    gpubench(lambda: time.sleep(2e-4))

@pytest.mark.gpubench(limits={"step_time_s": "7%", "loss_last": "1%"})
def test_by_rule(gpubench):
    gpubench(lambda: time.sleep(2e-4))
"""
FROZEN, BY_RULE = "test_it.py::test_frozen", "test_it.py::test_by_rule"
ROUNDS = {"rounds": 7, "durations_per_round": 3, "calls_per_duration": 2}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Two benchmarks, and a file that fixes the rounds of one."""
    project = InlineProject(tmp_path_factory.mktemp("project"))
    project.write("test_it.py", TESTS)
    project.write(
        "rounds.json",
        json.dumps({"schema_version": 1, "benchmarks": {FROZEN: ROUNDS, "gone": ROUNDS}}),
    )
    return project


@pytest.fixture(scope="module")
def run(project: Project) -> Run:
    """A session with a profile, one key of it stated, frozen rounds and limits."""
    return project.run(
        "--measure.rounds_file=rounds.json",
        "--measure.profile=quick",
        "--measure.max_rounds=24",
        "--measure.max_time_s=60",
        "--measure.min_time_s=0.001",
        "--measure.ci_half_width=1e-9",
        "--measure.warmup_s=0.001",
        "--gate.limits={step_time_s: 5%}",
        "--gate.limits.peak_memory_bytes=<=1e12",
        quick=False,
    )


def test_a_benchmark_in_the_file_runs_exactly_those_rounds(run: Run) -> None:
    """The one that is not named stops by its rule; a name without a benchmark is ignored."""
    assert run.code == 0, run.out + run.err
    samples = {e["id"]: e["samples"] for e in run.journal if e["event"] == "benchmark"}
    frozen = samples[FROZEN]
    assert (len(frozen["durations_s"]), sum(frozen["block_calls"])) == (21, 42)
    assert (frozen["durations_per_round"], frozen["calls_per_duration"]) == (3, 2)
    rounds = len(samples[BY_RULE]["durations_s"]) / samples[BY_RULE]["durations_per_round"]
    assert rounds == 12
    assert "cut_short" not in frozen["flags"]


def test_the_profile_gives_the_defaults(run: Run) -> None:
    """The resolved configuration has its values, and the stated ones."""
    resolved = yaml.safe_load((run.directory / "config_resolved.yaml").read_text())
    measure = resolved[BY_RULE]["measure"]
    keys = ("profile", "warmup_max_rounds", "max_rounds")
    assert [measure[key] for key in keys] == ["quick", 50, 24]
    (settings,) = {json.dumps(record["settings"]) for record in run.summary["benchmarks"]}
    assert json.loads(settings)["measure.warmup_max_rounds"] == 50
    assert not {"measure.profile", "measure.rounds_file"} & json.loads(settings).keys()


def test_limits_of_the_command_line_outrank_the_mark(run: Run) -> None:
    """Metric by metric, however they are written."""
    limits = {record["id"]: record["limits"] for record in run.summary["benchmarks"]}
    given = {"step_time_s": "5%", "peak_memory_bytes": "<=1e12"}
    assert limits == {FROZEN: given, BY_RULE: {**given, "loss_last": "1%"}}
