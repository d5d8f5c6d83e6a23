"""In one process: a failed allocation is survived, a hang ends the session and says why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.projects import Project

pytestmark = pytest.mark.own_process


def test_failures_leave_nothing_behind_and_a_hang_ends_with_stacks(project: Project) -> None:
    """The benchmark after one that failed is unaffected; one that never ends is told."""
    project.write(
        "test_it.py",
        """
        import os, pathlib, random, weakref, numpy, pytest, torch
        held, before, after = [], [], []
        @pytest.fixture
        def tensor():
            made = torch.ones(2**20)
            held.append(weakref.ref(made))
            return made
        @pytest.fixture
        def nothing_is_held():
            assert [reference() for reference in held] == [None] * len(held)
            held.clear()
        def result():
            drawn = torch.rand(64, 64), random.random(), numpy.random.rand()
            here = torch.get_num_threads(), os.environ["PATH"], pathlib.Path.cwd()
            return str([(drawn[0] @ drawn[0].T).sum().item(), *drawn[1:], *here])
        def test_before(gpubench):
            gpubench(lambda: before.append(result()))
        def test_fails(gpubench, tensor):
            kept_by_a_frame = torch.ones(2**20)
            held.append(weakref.ref(kept_by_a_frame))
            def step():
                torch.manual_seed(7), random.seed(7), numpy.random.seed(7)
                torch.set_grad_enabled(False), torch.set_num_threads(7)
                torch.set_default_dtype(torch.float64), torch.set_default_device("meta")
                torch.set_autocast_enabled("cpu", True)
                torch.backends.cudnn.enabled = False
                os.environ.clear(), os.chdir("/")
                torch.distributed.destroy_process_group()
                raise ValueError
            gpubench(step)
        def test_after(nothing_is_held, gpubench):
            gpubench(lambda: after.append(result()))
            assert all(one == other for one, other in zip(before, after))  # not equally many
            total = torch.ones(1)
            torch.distributed.all_reduce(total)
        def test_oom(gpubench, tensor):
            kept_by_a_frame = torch.ones(2**20)
            held.append(weakref.ref(kept_by_a_frame))
            gpubench(lambda: torch.empty(2**50))
        def test_next(nothing_is_held, gpubench):
            gpubench(lambda: None)
        def never_ends():
            while True:
                pass
        @pytest.mark.gpubench(timeout_s=5)
        def test_hangs(gpubench):
            print("last words")
            gpubench(never_ends)
        def test_never(gpubench):
            gpubench(lambda: None)
        """,
    )

    run = project.run("--junitxml=junit.xml")

    assert run.code == 1
    assert list(run.outcomes.values()) == [
        "measured",
        "failed",
        "measured",
        "oom",
        "measured",
        "hang",
        "not_measured",
    ], run.out
    assert run.summary["status"] == "failed"
    assert [e.get("outcome") for e in run.journal if e["event"] == "benchmark"][3:] == [
        "oom",
        "measured",
        "hang",
    ]
    oom, _, hang, never = run.summary["benchmarks"][3:]
    assert oom["reason"].startswith("out of memory, requested 4.00 PiB, peak ")
    assert hang["reason"] == "timed out after 5 s (measure.timeout_s)"
    assert "in never_ends" in run.out.partition(" Stack -")[2]
    assert (
        "With --isolate every benchmark runs in its own processes, and the session continues"
        in run.out
    )
    assert "hangs in this process" in never["reason"]
    assert run.err == ""
    assert 'tests="6"' in (project.path / "junit.xml").read_text()
