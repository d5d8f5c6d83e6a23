"""In one process: a failed allocation is survived, a hang ends the session and says why."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.acceptance.conftest import Project


def test_oom_frees_its_memory_and_a_hang_ends_with_stacks(project: Project) -> None:
    """The benchmark after an allocation that failed is unaffected; one that never ends is told."""
    project.write(
        "test_it.py",
        """
        import weakref, pytest, torch
        held = []
        @pytest.fixture
        def tensor():
            made = torch.ones(2**20)
            held.append(weakref.ref(made))
            return made
        @pytest.fixture
        def nothing_is_held():
            assert [reference() for reference in held] == [None, None]
        def test_oom(gpubench, tensor):
            kept_by_a_frame = torch.ones(2**20)
            held.append(weakref.ref(kept_by_a_frame))
            gpubench(lambda: torch.empty(2**50))
        def test_next(nothing_is_held, gpubench):
            gpubench(lambda: None)
        def never_ends():
            while True:
                pass
        @pytest.mark.gpubench(timeout_s=1)
        def test_hangs(gpubench):
            print("last words")
            gpubench(never_ends)
        def test_never(gpubench):
            gpubench(lambda: None)
        """,
    )

    run = project.run("--junitxml=junit.xml")

    assert run.code == 1
    assert list(run.outcomes.values()) == ["oom", "measured", "hang", "not_measured"], run.out
    assert run.summary["status"] == "failed"
    assert [e.get("outcome") for e in run.journal if e["event"] == "benchmark"] == [
        "oom",
        "measured",
        "hang",
    ]
    oom, _, hang, never = run.summary["benchmarks"]
    assert oom["reason"].startswith("out of memory, requested 4.00 PiB, peak ")
    assert hang["reason"] == "rank 0 did not end within 1 s (measure.timeout_s)"
    assert "in never_ends" in run.out.partition("Stack of rank 0")[2]
    assert "With --isolate every benchmark has processes of its own" in run.err
    assert "did not end within 1 s (measure.timeout_s); it ran in this process" in never["reason"]
    assert 'tests="3"' in (project.path / "junit.xml").read_text()
