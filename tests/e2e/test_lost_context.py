"""A lost CUDA context costs one benchmark where processes are replaced, else it ends the session.

Without a device its error is raised by hand: no benchmark may run in that process afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from gpubench_plugin.measure import torch_state
from tests.support.exhaustive import shown

if TYPE_CHECKING:
    from tests.support.projects import Project, Run

BEGINNING = """
import os, pathlib, pytest, torch
pytestmark = pytest.mark.gpubench(ranks="any")

class Device:
    lost = False

def use_device():
    if Device.lost or os.environ.get("RANK", "0") not in os.environ.get("LOSING", "0"):
        return
    Device.lost = True
    raise_error()

def raise_error():
    raise torch.AcceleratorError("CUDA error: device-side assert triggered\\nCompile with")

@pytest.fixture
def model():
    yield
    if Device.lost: raise_error()

@pytest.fixture(scope="module")
def shared():
    yield
    if Device.lost: raise_error()

def test_before(gpubench):
    assert not Device.lost
    gpubench(lambda: None, samples=1)
"""
AFTER = """
def test_after(gpubench):
    assert not Device.lost
    pathlib.Path("ran").touch()
    gpubench(lambda: None, samples=1)
"""
IN_THE_STEP = """
def test_loses(gpubench, shared, model):
    gpubench(use_device)
"""
IN_SETUP = """
@pytest.fixture
def early(model, shared): use_device()
def test_loses(gpubench, early):
    gpubench(lambda: None)
"""
IN_TEARDOWN = """
@pytest.fixture
def late(shared):
    yield
    use_device()
def test_loses(gpubench, late):
    gpubench(lambda: None)
"""
CAUGHT = """
def test_loses(gpubench, shared, model):
    try:
        gpubench(use_device)
    except torch.AcceleratorError:
        pass
"""
EXPECTED = """
@pytest.mark.xfail
def test_loses(gpubench, shared, model):
    gpubench(use_device)
"""
LOST = "CUDA context lost: AcceleratorError: CUDA error: device-side assert triggered"
ENDS = f"{LOST}; no benchmark can run in this process any more, so the session ends. With --isolate"


def outcomes(run: Run) -> list[str]:
    """Of the benchmarks before, in and after the loss."""
    assert "INTERNALERROR" not in run.out + run.err
    return list(run.outcomes.values())


@pytest.mark.parametrize(
    ("source", "outcome", "counts"),
    [
        (IN_THE_STEP, "crashed", "1 failed, 1 passed in"),
        (IN_SETUP, "crashed", "1 passed, 1 error in"),
        (IN_TEARDOWN, "crashed", "2 passed, 1 error in"),
        (CAUGHT, "crashed", "2 passed, 1 warning, 1 error in"),
        (EXPECTED, "skipped", "1 passed, 1 xfailed in"),
    ],
    ids=["step", "setup", "teardown", "caught", "expected"],
)
def test_loss_in_one_process_ends_the_session_once_reported(
    project: Project, source: str, outcome: str, counts: str
) -> None:
    """What was measured is kept, one report tells it, and the next benchmark is not blamed.

    `counts` shows that tear-downs, of the test and of its module, repeat nothing.
    """
    project.write("test_it.py", BEGINNING + source + AFTER)

    run = project.run()

    assert run.code == 1, run.out + run.err
    assert outcomes(run) == ["measured", outcome, "not_measured"]
    assert counts in run.out
    assert "error at the end of the session" not in run.out
    before, faulty_one, after = run.summary["benchmarks"]
    assert before["metrics"]["samples_per_s"]
    if outcome == "crashed":
        assert faulty_one["reason"].startswith(LOST)
    assert after["reason"].startswith(f"test_loses: {ENDS}")
    assert ENDS in run.out
    assert not (project.path / "ran").exists()
    assert run.summary["status"] == "failed"


def test_resumed_run_measures_what_the_loss_left(project: Project) -> None:
    """In a new process, which has its own context; the earlier number stays."""
    project.write("test_it.py", BEGINNING + IN_THE_STEP + AFTER)
    first = project.run()

    again = project.run(f"--resume={first.directory}", env={"LOSING": "none"})

    assert again.code == 0, again.out + again.err
    assert outcomes(again) == ["measured"] * 3
    assert first.directories == again.directories
    assert "resumed: 1 already measured, 2 remaining" in again.out


@pytest.mark.exhaustive
def test_isolated_loss_costs_its_own_benchmark_only(project: Project) -> None:
    """Each benchmark has a process, so that the session goes on."""
    project.write("test_it.py", BEGINNING + IN_THE_STEP + AFTER)

    run = project.run("--isolate")

    assert run.code == 1, run.out + run.err
    assert outcomes(run) == ["measured", "crashed", "measured"]
    assert "so the session ends" not in run.out
    assert run.summary["benchmarks"][2]["metrics"]["samples_per_s"]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("source", "losing", "outcome"),
    [
        (IN_TEARDOWN, "1", "crashed"),
        (CAUGHT, "0 and 1", "crashed"),
        (EXPECTED, "0 and 1", "skipped"),
    ],
)
def test_gang_is_replaced_wherever_its_ranks_lose_their_contexts(
    project: Project, source: str, losing: str, outcome: str
) -> None:
    """One rank, or all of them, in any phase: the next benchmark is measured."""
    project.write("test_it.py", BEGINNING + source + AFTER)
    graces = ("--distributed.failure_grace_s=1", "--distributed.divergence_s=5")

    run = project.run("--world-size=2", *graces, env={"LOSING": losing})

    assert outcomes(run) == ["measured", outcome, "measured"], run.out + run.err


@pytest.mark.parametrize("losing", shown("1", exhaustively=("0", "0 and 1")))
def test_loss_under_torchrun_ends_all_ranks(project: Project, losing: str) -> None:
    """No rank can be replaced, and none waits for one that is of no more use."""
    project.write("test_it.py", BEGINNING + IN_THE_STEP + AFTER)

    run = project.run("--distributed.failure_grace_s=1", ranks=2, env={"LOSING": losing})

    assert run.code == 1, run.out + run.err
    assert outcomes(run) == ["measured", "crashed", "not_measured"]
    _, faulty_one, after = run.summary["benchmarks"]
    where = "" if losing == "0 and 1" else f"rank {losing}: "
    assert faulty_one["reason"].startswith(where + LOST)
    assert "these ranks cannot be replaced, so the session ends" in after["reason"]
    assert not (project.path / "ran").exists()


def test_loss_by_an_adopted_test_ends_the_session(project: Project) -> None:
    """It runs in pytest's process even with ``--isolate``, which is therefore no advice."""
    adopted = """
def test_loses(benchmark): benchmark(use_device)
def test_adopted_after(benchmark): pathlib.Path("ran").touch()
"""
    project.write("test_it.py", BEGINNING + adopted + AFTER)

    run = project.run("--adopt")

    assert run.code == 1, run.out + run.err
    assert outcomes(run) == ["measured", "crashed", "not_measured", "not_measured"]
    assert run.summary["benchmarks"][1]["reason"] == LOST
    assert "so the session ends" in run.out
    assert "With --isolate" not in run.out
    assert not (project.path / "ran").exists()


def test_benchmark_after_an_ordinary_tests_loss_says_when_it_happened(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device is asked before anything of the benchmark uses it."""
    project.write(
        "test_it.py",
        """
        import pathlib
        def test_ordinary(): pathlib.Path("lost").touch()
        def test_x(gpubench, torch_device): pathlib.Path("ran").touch()
        def test_after(gpubench, torch_device): pathlib.Path("ran").touch()
        """,
    )
    reset_memory = torch_state._reset_memory

    def ask(device: torch.device) -> None:
        if (project.path / "lost").exists():
            raise torch.AcceleratorError("CUDA error: device-side assert triggered")
        reset_memory(device)

    monkeypatch.setattr(torch_state, "_reset_memory", ask)

    run = project.run()

    assert run.code == 1, run.out + run.err
    assert list(run.outcomes.values()) == ["crashed", "not_measured"]
    said = "raised as GpubenchError: cpu: its context was lost before this benchmark"
    assert run.summary["benchmarks"][0]["reason"] == f"{LOST}; {said}"
    assert not (project.path / "ran").exists()
