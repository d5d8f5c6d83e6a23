"""A plain session: what is measured, recorded and printed."""

from __future__ import annotations

import csv
import json
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import jsonschema
import yaml

from gpubench_plugin.results.prune import unknown_files
from gpubench_plugin.results.run_directory import RunDirectory

if TYPE_CHECKING:
    from tests.support.projects import Project

SCHEMA = Path(__file__).parents[2] / "docs/schemas/summary.schema.json"

SPIN = """
def test_spin(gpubench):
    gpubench(lambda: sum(range(1000)), samples=4)
"""


def test_measured_benchmark_leaves_every_file_of_the_run_directory(project: Project) -> None:
    """One measured benchmark leaves all files, each of which says the same."""
    project.write("test_it.py", SPIN)

    run = project.run("--tag=first", "--experiment=mine", "--experiment.notes=on a Monday")

    assert run.code == 0, run.out + run.err
    assert run.directory.parent.name == "mine"
    assert "_first_" in run.directory.name
    jsonschema.validate(run.summary, json.loads(SCHEMA.read_text()))
    (benchmark,) = run.summary["benchmarks"]
    assert benchmark["id"] == "test_it.py::test_spin"
    assert benchmark["params"] == {"world_size": "1"}
    assert benchmark["host"] == socket.gethostname()
    assert benchmark["metrics"]["rounds"]["value"] > 0
    assert run.summary["status"] == "complete"
    configuration = yaml.safe_load((run.directory / "config_resolved.yaml").read_text())
    assert configuration[benchmark["id"]] == benchmark["configuration"]
    assert configuration[benchmark["id"]]["experiment"]["notes"] == "on a Monday"
    (row,) = csv.DictReader((run.directory / "summary.csv").read_text().splitlines())
    assert float(row["step_time_s"]) == benchmark["metrics"]["step_time_s"]["value"]
    assert json.loads((run.directory / "system.json").read_text()) == run.summary["environment"]
    events = [line["event"] for line in run.journal if line["event"] not in {"phase", "progress"}]
    assert events == ["run_started", "benchmark", "run_finished"]
    assert "test_spin" in (run.directory / "run.log").read_text()
    assert unknown_files(RunDirectory(path=run.directory)) == []
    (carried,) = json.loads((run.directory / "benchmark.json").read_text())["benchmarks"]
    assert carried["fullname"] == benchmark["id"]
    assert carried["stats"]["median"] == benchmark["metrics"]["step_time_s"]["value"]


NO_UTF8 = """
import os
import pytest
NAME = os.fsdecode(b"x\\xe9.bin")
def test_missing(gpubench):
    gpubench(lambda: open(NAME))
def test_adopted(benchmark):
    benchmark(open, NAME)
def test_skipped(gpubench):
    pytest.skip(f"no {NAME}")
@pytest.mark.parametrize("name", [NAME])
def test_case(gpubench, name):
    gpubench(lambda: len(name))
"""


def test_a_file_name_that_is_no_text_is_recorded_as_escapes(project: Project) -> None:
    """In reasons and ids, on the screen and in the log; logging has no error of its own."""
    project.write("test_it.py", NO_UTF8)

    run = project.run("--adopt")

    assert (run.code, "Logging error" in run.out + run.err) == (1, False), run.out + run.err
    assert sorted(run.outcomes.values()) == ["failed", "failed", "measured", "skipped"]
    lines = (run.directory / "run.log").read_text(encoding="utf-8").splitlines()
    assert sum("x\\udce9.bin" in line for line in lines) == 4, lines
    assert "no x\\udce9.bin" in run.out


def test_cases_are_precision_by_device_and_own_marks_come_first(project: Project) -> None:
    """Ids put own parameters first, then precision and world size, and a device only of several."""
    project.write(
        "test_it.py",
        """
        import pytest
        @pytest.mark.parametrize("layout", ["a", "b"])
        def test_x(gpubench, precision, layout):
            gpubench(lambda: None)
        """,
    )

    out = project.run("--collect-only", "-q", "--precision=fp32,bf16", "--device=cpu,auto").out

    assert "test_it.py::test_x[a-fp32-cpu]" in out
    assert "test_it.py::test_x[b-bf16-auto]" in out
    assert "8 tests collected" in out


def test_step_setup_and_teardown_run_around_every_call_and_are_not_timed(project: Project) -> None:
    """A setup that sleeps ten times longer than the step does not show in the step time."""
    project.write(
        "test_it.py",
        """
        import time
        def test_x(gpubench):
            order = []
            measured = gpubench(
                lambda: (order.append("step"), time.sleep(0.001)),
                setup=lambda: (order.append("setup"), time.sleep(0.02)),
                teardown=lambda: order.append("teardown"),
            )
            assert order[:3] == ["setup", "step", "teardown"]
            assert order.count("setup") == order.count("step") == order.count("teardown")
            assert measured.metrics["step_time_s"].value < 0.02
        """,
    )

    assert project.run().outcomes == {"test_x": "measured"}


def test_first_step_is_the_very_first_one(project: Project) -> None:
    """A trainer's first step is one of its untimed check; compile time is derived from it."""
    project.write(
        "test_it.py",
        """
        import time, pytest
        @pytest.mark.gpubench(config="mlp")
        def test_x(gpubench, model, trainer):
            def slow_once(*_):
                handle.remove()
                time.sleep(0.5)
            handle = model.register_forward_pre_hook(slow_once)
            measured = gpubench(trainer.step)
            assert measured.metrics["first_step_s"].value > 0.5
        """,
    )

    assert project.run("--preset=tiny").outcomes == {"test_x[fp32]": "measured"}


def test_models_do_not_outlive_their_benchmark(project: Project) -> None:
    """The next benchmark starts without the memory of the one before."""
    project.write(
        "test_it.py",
        """
        import gc, weakref, pytest
        models = []
        @pytest.mark.gpubench(config="mlp")
        @pytest.mark.parametrize("number", ["1", "2"])
        def test_x(gpubench, model, trainer, number):
            gc.collect()
            assert [one() for one in models] == [None] * len(models)
            models.append(weakref.ref(model))
            gpubench(trainer.step)
        """,
    )

    run = project.run("--preset=tiny")

    assert set(run.outcomes.values()) == {"measured"}, run.out


def test_no_secret_in_the_notes_is_recorded(project: Project) -> None:
    """Credentials in the notes are hidden in every file, as on the command line."""
    project.write("test_it.py", SPIN)

    run = project.run("--experiment.notes=see https://user:hunter2@example.org")

    files = [file for file in run.directory.rglob("*") if file.is_file()]
    assert [file.name for file in files if "hunter2" in file.read_text()] == []
    assert "https://***@example.org" in (run.directory / "summary.json").read_text()


def test_profile_traces_extra_steps(project: Project) -> None:
    """With --profile a trace of the benchmark lies in the run's folder of traces."""
    project.write(
        "test_it.py",
        """
        def test_x(gpubench):
            import torch
            a = torch.ones(8, 8)
            gpubench(lambda: a @ a)
        """,
    )

    run = project.run("--profile")

    (trace,) = (run.directory / "traces").iterdir()
    assert "aten::mm" in trace.read_text()
    (benchmark,) = run.summary["benchmarks"]
    busiest = benchmark["correctness"]["operators"]["operators"][0]
    assert (busiest["name"], busiest["calls"]) == ("aten::mm", 1.0)
    assert "operators by own CPU time, per step" in run.out
