"""What torchrun's ranks owe their starter: no rank stays, and none is waited for in vain."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.results.journal import JournalTail
from gpubench_plugin.system.scratch import private_folder
from tests.support import faulty
from tests.support.exhaustive import shown
from tests.support.processes import processes_with, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.projects import Project

AROUND = """
import os, signal, time, pytest, torch
from torch import distributed as dist
pytestmark = pytest.mark.gpubench(ranks="any")
RANK = int(os.environ["RANK"])
def meet():
    dist.all_reduce(torch.ones(1))
def stand_still():
    open(f"there-{RANK}", "w").close()
    time.sleep(1000)
def test_before(gpubench):
    gpubench(lambda: None)
def test_faulty(gpubench):
    %s
def test_after(gpubench):
    gpubench(lambda: None)
"""


@pytest.fixture
def mark() -> Iterator[dict[str, str]]:
    """A variable that all processes of a run inherit; whatever is left of them is ended."""
    with tempfile.TemporaryDirectory(prefix="gpb-") as folder:  # short enough for our own folder
        yield {"TMPDIR": folder}
        left = list(Path(folder).glob("gpubench-*"))
    for pid in processes_with(f"TMPDIR={folder}"):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert left == []


def wait_until_gone(mark: dict[str, str]) -> None:
    """Fail if processes of the run stay."""
    wait_until(lambda: not processes_with(f"TMPDIR={mark['TMPDIR']}"), within_s=20)


@pytest.mark.exhaustive
def test_death_of_the_controller_leaves_a_readable_journal(
    project: Project, mark: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is left to write a summary, but what was measured before stands in the journal."""
    kill = "os.kill(os.getppid(), signal.SIGKILL) if RANK == 0 else meet()"
    project.write("test_it.py", AROUND % f"{kill}; stand_still()")

    run = project.run(ranks=2, env=mark)

    assert run.code != 0, run.out + run.err
    wait_until_gone(mark)

    measured = [
        e for e in JournalTail(run.directory / "metrics.jsonl") if e["event"] == "benchmark"
    ]
    assert [(e["name"], e["outcome"]) for e in measured] == [("test_before[ranks2]", "measured")]
    assert measured[0]["samples"]["durations_s"]
    assert not (run.directory / "summary.json").exists()
    (abandoned,) = Path(mark["TMPDIR"]).glob("gpubench-*")
    monkeypatch.setattr(tempfile, "tempdir", mark["TMPDIR"])
    private_folder().remove()
    assert not abandoned.exists(), "the next session removes what the controller could not"


@pytest.mark.parametrize(
    "number", shown(signal.SIGINT, exhaustively=(signal.SIGTERM, signal.SIGKILL))
)
def test_run_whose_torchrun_is_ended_is_interrupted(
    project: Project, mark: dict[str, str], number: signal.Signals
) -> None:
    """Ctrl-C, a scheduler, or the death of torchrun: no rank stays, the run is interrupted."""
    project.write("test_it.py", AROUND % "stand_still() if RANK == 1 else meet()")
    process = project.start("--measure.by=steps", "--measure.steps=20", ranks=2, env=mark)
    wait_until((project.path / "there-1").exists, within_s=100)

    process.send_signal(number)
    out, err = process.communicate(timeout=100)

    assert process.returncode != 0
    wait_until_gone(mark)
    (directory,) = (project.path / "results").glob("*/*")
    events = [*JournalTail(directory / "metrics.jsonl")]
    assert [e["outcome"] for e in events if e["event"] == "benchmark"] == ["measured"]
    summary = json.loads((directory / "summary.json").read_text())
    outcomes = [(b["outcome"], b["reason"]) for b in summary["benchmarks"]]
    assert outcomes == [
        ("measured", ""),
        ("not_measured", "interrupted"),
        ("not_measured", "interrupted"),
    ], out + err
    assert summary["status"] == "interrupted"
    assert out.count("= gpubench =") == 1, out
    assert "the session's end failed" not in out + err


@pytest.mark.exhaustive
def test_child_leaves_requests_to_the_controller(project: Project) -> None:
    """Whoever signals the whole group reaches both, and one of them ends the session."""
    asked = (
        "RANK or [os.kill(os.getpid(), n) for n in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)]"
    )
    project.write("test_it.py", AROUND % f"{asked}; gpubench(meet)")
    run = project.run(ranks=2)
    assert (run.code, {*run.outcomes.values()}) == (0, {"measured"}), run.out + run.err


@pytest.mark.exhaustive
def test_all_ranks_stop_after_the_same_failure(project: Project, mark: dict[str, str]) -> None:
    """A benchmark is one failure on every rank however it ended there; an OOM outranks the rest."""
    project.write(
        "test_it.py",
        """
        import os, pytest, torch
        pytestmark = pytest.mark.gpubench(ranks="any")
        RANK = int(os.environ["RANK"])
        @pytest.fixture
        def breaks():
            yield
            assert RANK == 0, "teardown of rank 1"
        def test_twice(gpubench, breaks):
            gpubench(lambda: None)
            assert RANK == 0, "call of rank 1"
        def test_oom(gpubench):
            gpubench(lambda: None)
            if RANK == 1:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
            pytest.fail("rank 0 fails, too")
        def test_never(gpubench): gpubench(lambda: None)
        """,
    )

    run = project.run("--maxfail=3", ranks=2, env=mark)

    assert run.code != 0
    twice, oom, never = run.summary["benchmarks"]
    assert (twice["outcome"], oom["outcome"]) == ("mismatched_ranks", "oom"), run.out + run.err
    assert "rank 0 passed; rank 1 failed (AssertionError: call of rank 1" in twice["reason"]
    assert oom["reason"].startswith("rank 1: out of memory, requested 2.00 GiB, peak ")
    assert (never["outcome"], never["reason"]) == ("not_measured", "stopping after 3 failures")
    assert "2 failed, 1 error" in run.out, "the tear-down's, as pytest counts it"
    wait_until_gone(mark)


@pytest.mark.exhaustive
def test_group_of_the_projects_own_is_used_until_it_is_broken(
    project: Project, mark: dict[str, str]
) -> None:
    """It cannot be replaced: the benchmarks after that are not measured, and it is said why."""
    project.write(
        "conftest.py",
        """
        from torch import distributed as dist
        import pytest
        @pytest.fixture(scope="session", autouse=True)
        def group(): dist.init_process_group("gloo")
        """,
    )
    project.write("test_it.py", faulty.module(("wrong_call", "half_done"), ddp=()))

    run = project.run("--distributed.failure_grace_s=1", ranks=2, env=mark)

    found = [(b["name"].partition("[")[0], b["outcome"]) for b in run.summary["benchmarks"]]
    assert found == [
        ("test_good_0", "measured"),
        ("test_wrong_call", "failed"),
        ("test_good_1", "measured"),
        ("test_half_done", "measured"),
        ("test_good_2", "not_measured"),
    ], run.out + run.err
    why = "test_half_done[ranks2] left the process group in an unusable state; these ranks cannot"
    assert run.summary["benchmarks"][-1]["reason"].startswith(why)
    assert run.summary["status"] == "failed"
    assert run.code != 0
    wait_until_gone(mark)


@pytest.mark.exhaustive
def test_other_tests_need_not_be_in_step(project: Project, mark: dict[str, str]) -> None:
    """The graces of benchmarks are not theirs."""
    project.write(
        "test_it.py",
        """
        import os, time, pytest
        RANK = int(os.environ["RANK"])
        def test_slow():
            time.sleep(3 * (RANK == 0))
        @pytest.mark.gpubench(ranks="any")
        def test_good(gpubench):
            gpubench(lambda: None)
        """,
    )

    graces = ("--distributed.failure_grace_s=1", "--distributed.divergence_s=1")
    run = project.run(*graces, ranks=2, env=mark)

    assert run.code == 0, run.out + run.err
    assert run.outcomes == {"test_good[ranks2]": "measured"}


BETWEEN = """
import os, time, pytest
RANK = int(os.environ["RANK"])
@pytest.mark.gpubench(ranks="any")
def test_before(gpubench):
    gpubench(lambda: None)
def test_between():
    %s
@pytest.mark.gpubench(ranks="any", timeout_s=5)
def test_after(gpubench):
    gpubench(lambda: None)
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    ("act", "said"),
    [
        ("assert RANK != %d", "stopping after 1 failures"),
        ("RANK == %d and time.sleep(1000)", "timed out 20 s after another rank passed"),
    ],
)
def test_fault_of_a_plain_test_on_one_rank_ends_the_session(
    project: Project, mark: dict[str, str], act: str, said: str, rank: int
) -> None:
    """It fails there and ``-x`` is given, or stands still."""
    project.write("pytest.ini", "[pytest]\ngpubench_timeout_s = 20\n")
    project.write("test_it.py", BETWEEN % (act % rank))

    run = project.run(*["-x"] * ("assert" in act), ranks=2, env=mark)

    assert run.code != 0
    before, after = run.summary["benchmarks"]
    assert before["outcome"] == "measured", run.out + run.err
    assert after["outcome"] == "not_measured"
    assert said in after["reason"]
    stack = run.out.partition(f"Stack of rank {rank}")[2]
    assert ("in test_between" in stack) == ("sleep" in act)
    assert run.summary["status"] == "failed"
    wait_until_gone(mark)
