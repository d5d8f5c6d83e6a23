"""What happens to the process while it measures: it is followed by coverage, or stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.exhaustive import shown

if TYPE_CHECKING:
    from tests.support.projects import Project

pytestmark = pytest.mark.own_process

CONFTEST = """
import os
import coverage

def pytest_configure(config):
    # Not coverage.Coverage.current(): these tests themselves may run under coverage.
    config.measuring = coverage.Coverage(data_file=None, include=["*/test_steps.py"])
    config.measuring.start()

def pytest_unconfigure(config):
    config.measuring.stop()
    _, _, missed, _ = config.measuring.analysis(str(config.rootpath / "test_steps.py"))
    (config.rootpath / f"missed-{os.environ.get('RANK')}").write_text(str(missed))
"""

STEPS = """
import os, subprocess, sys
import pytest

pytestmark = pytest.mark.gpubench(ranks="any")
traced, calls = [], []

def step():
    traced.append(sys.gettrace() is not None)
    return sum(range(100))

def pausing():
    calls.append(1)
    if len(calls) == 3 and os.environ.get("RANK", "1") == "1":
        this = os.getpid()
        subprocess.run(["sh", "-c", f"kill -STOP {this}; sleep 0.3; kill -CONT {this}"])

def test_followed(gpubench):
    tracer = sys.gettrace()
    gpubench(step)
    assert sys.gettrace() is tracer is not None
    assert traced.count(True) == 1 == len(traced) - traced.index(True)

def test_stopped(gpubench):
    gpubench(pausing)
"""


@pytest.mark.parametrize("world_size", shown(1, exhaustively=(2,)))
def test_tracer_is_not_measured_and_a_stop_is_flagged(project: Project, world_size: int) -> None:
    """In this process and in the ranks of a gang; coverage sees one step, which is not timed.

    What only timed steps run, to be stopped, it does not see.
    """
    project.write("conftest.py", CONFTEST)
    project.write("test_steps.py", STEPS)
    run = project.run(f"--world-size={world_size}")

    assert run.code == 0, run.out
    flags = {b["name"].split("[")[0]: set(b["flags"]) for b in run.summary["benchmarks"]}
    assert not {"instrumented", "suspended"} & flags["test_followed"]
    assert "suspended" in flags["test_stopped"]
    missed = project.path / f"missed-{1 if world_size > 1 else None}"
    assert missed.read_text() == "[15, 16]"
