"""What goes wrong under torchrun: every rank fails loudly, and what was measured is kept."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.results import journal
from gpubench_plugin.system.scratch import private_folder
from tests.support import faulty
from tests.support.exhaustive import shown
from tests.support.processes import processes_with, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.projects import Project, Run

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
@pytest.mark.gpubench(ranks="any", timeout_s=%g)
def test_faulty(gpubench):
    %s
def test_after(gpubench):
    gpubench(lambda: None)
"""
NAMES = ("test_before[ws2]", "test_faulty[ws2]", "test_after[ws2]")


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


def run_faulty(
    project: Project, fault: str, mark: dict[str, str], *args: str, timeout_s: float = 600
) -> Run:
    """Two ranks run a good benchmark, one with that `fault` and time, and another good one."""
    project.write("test_it.py", AROUND % (timeout_s, fault))
    run = project.run(*args, ranks=2, env=mark)
    assert run.code != 0, run.out + run.err
    wait_until_gone(mark)
    return run


def require_only_the_fault_failed(run: Run, outcome: str) -> dict[str, Any]:
    """The record of the faulty benchmark, in a run that kept all it could."""
    said = run.out + run.err
    assert run.outcomes == dict(zip(NAMES, ("measured", outcome, "not_measured"), strict=True)), (
        said
    )
    assert run.summary["status"] == "failed"
    measured = [line for line in run.journal if line.get("outcome") == "measured"]
    assert [line["name"] for line in measured] == [NAMES[0]]
    before, faulty, after = run.summary["benchmarks"]
    assert "step_time_s" in before["metrics"]
    assert (
        "; ranks started by torchrun cannot be replaced, so the session ends. " in after["reason"]
    )
    assert "pytest --world-size=2" in said
    assert "INTERNALERROR" not in said
    found: dict[str, Any] = faulty
    return found


def test_killed_rank_is_named_with_its_signal(project: Project, mark: dict[str, str]) -> None:
    """SIGKILL of a rank is a crash of the benchmark that ran, though rank zero waits in C.

    Its signal is named unless torchrun reaped it first, which alone knows it then.
    """
    logs = "[gpubench.log(step=step, loss=1.0) for step in range(900)]; meet()"
    fault = f"{logs}; os.kill(os.getpid(), signal.SIGKILL) if RANK == 1 else meet()"

    run = run_faulty(project, fault, mark)

    faulty = require_only_the_fault_failed(run, "crashed")
    steps = [event["step"] for event in run.journal if event["event"] == "log"]
    assert steps == [*range(900)], "of rank zero alone"
    named = ("rank 1 was killed by SIGKILL", "rank 1 ended (see its launcher's own report)")
    assert faulty["reason"].startswith(named)
    assert "SIGKILL" in run.out + run.err


@pytest.mark.exhaustive
def test_death_of_rank_zero_is_recorded(project: Project, mark: dict[str, str]) -> None:
    """It is a child like the others; its controller writes what happened."""
    run = run_faulty(project, "os._exit(3) if RANK == 0 else meet()", mark)
    faulty = require_only_the_fault_failed(run, "crashed")
    assert faulty["reason"].startswith("rank 0 exited with code 3")


@pytest.mark.exhaustive
def test_death_of_the_controller_leaves_a_readable_journal(
    project: Project, mark: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is left to write a summary, but what was measured before stands in the journal."""
    kill = "os.kill(os.getppid(), signal.SIGKILL) if RANK == 0 else meet()"
    run = run_faulty(project, f"{kill}; stand_still()", mark)

    measured = [
        e for e in journal.read(run.directory / "metrics.jsonl") if e["event"] == "benchmark"
    ]
    assert [(e["name"], e["outcome"]) for e in measured] == [(NAMES[0], "measured")]
    assert measured[0]["samples"]["durations_s"]
    assert not (run.directory / "summary.json").exists()
    (abandoned,) = Path(mark["TMPDIR"]).glob("gpubench-*")
    monkeypatch.setattr(tempfile, "tempdir", mark["TMPDIR"])
    private_folder().remove()
    assert not abandoned.exists(), "the next session removes what the controller could not"


FAILURE_GRACE, DIVERGENCE = "--distributed.failure_grace_s=1", "--distributed.divergence_s=3"
WAITS = {
    "meet() if RANK == 0 else pytest.fail('no luck')": (
        "failed",
        "rank 1: Failed: no luck; then rank 0 timed out 1 s after another rank failed",
        {0: "meet"},
    ),
    "meet() if RANK == 1 else None": (
        "hang",
        "rank 1 timed out 3 s after another rank passed",
        {1: "meet"},
    ),
    "stand_still() if RANK == 1 else meet()": (
        "hang",
        "ranks 0-1 timed out after 8 s",
        {0: "meet", 1: "stand_still"},
    ),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("fault", WAITS)
def test_rank_that_is_waited_for_in_vain_ends_the_session(
    project: Project, mark: dict[str, str], fault: str
) -> None:
    """Another one gave up, skips a collective, or none comes to the end; stacks say where."""
    outcome, reason, stacks = WAITS[fault]

    run = run_faulty(project, fault, mark, FAILURE_GRACE, DIVERGENCE, timeout_s=8)

    assert require_only_the_fault_failed(run, outcome)["reason"].startswith(reason)
    for rank, function in stacks.items():
        stack = run.out.partition(f"Stack of rank {rank}")[2].partition("\n---")[0]
        assert f"in {function}" in stack
    assert ("Traceback of rank 1" in run.out) == (outcome == "failed")


@pytest.mark.parametrize(
    "number", shown(signal.SIGINT, exhaustively=(signal.SIGTERM, signal.SIGKILL))
)
def test_run_whose_torchrun_is_ended_is_interrupted(
    project: Project, mark: dict[str, str], number: signal.Signals
) -> None:
    """Ctrl-C, a scheduler, or the death of torchrun: no rank stays, the run is interrupted."""
    project.write("test_it.py", AROUND % (600, "stand_still() if RANK == 1 else meet()"))
    process = project.start("--measure.by=steps", "--measure.steps=20", ranks=2, env=mark)
    wait_until((project.path / "there-1").exists, within_s=100)

    process.send_signal(number)
    out, err = process.communicate(timeout=100)

    assert process.returncode != 0
    wait_until_gone(mark)
    (directory,) = (project.path / "results").glob("*/*")
    events = journal.read(directory / "metrics.jsonl")
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


FAULTS = {
    "raise_after": "mismatched_ranks",
    "left_state": "measured",
    "destroyed": "measured",
    "caught": "not_measured",
    "fragile": "failed",
    "one_sided": "mismatched_ranks",
    "skips": "mismatched_ranks",
    "wrong_call": "failed",
    "oom_on_both": "oom",
    "misconfigured": "misconfigured",
    "all_raise": "failed",
    "group_timeout": "failed",
    "half_done": "measured",
}


@pytest.mark.exhaustive
def test_benchmark_after_each_fault_that_all_ranks_survive_is_measured(
    project: Project, mark: dict[str, str]
) -> None:
    """Whatever a fault does to the process group, the next benchmark has one that works."""
    faults = [getattr(faulty, name.upper()) for name in FAULTS]
    project.write("test_it.py", faulty.module(faults, ddp=faults[-3:]))

    env = {**mark, "TORCHINDUCTOR_CACHE_DIR": str(project.path / "compiled")}
    run = project.run("--distributed.failure_grace_s=3", ranks=2, env=env)

    found = {
        name.removeprefix("test_").partition("[")[0]: outcome
        for name, outcome in run.outcomes.items()
    }
    assert found == faulty.with_healthy(FAULTS, "measured"), run.out + run.err
    reasons = {b["name"]: b["reason"] for b in run.summary["benchmarks"]}
    assert reasons["test_all_raise[ws2]"] == "Mute: <exception str() failed>"
    said = "the ranks had different outcomes: rank 0 passed; rank 1 skipped"
    assert reasons["test_skips[ws2]"].startswith(said)
    assert run.code != 0
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
    project.write("test_it.py", faulty.module((faulty.WRONG_CALL, faulty.HALF_DONE), ddp=()))

    run = project.run("--distributed.failure_grace_s=1", ranks=2, env=mark)

    found = [(b["name"].partition("[")[0], b["outcome"]) for b in run.summary["benchmarks"]]
    assert found == [
        ("test_good_0", "measured"),
        ("test_wrong_call", "failed"),
        ("test_good_1", "measured"),
        ("test_half_done", "measured"),
        ("test_good_2", "not_measured"),
    ], run.out + run.err
    why = "test_half_done[ws2] left the process group in an unusable state; ranks started by"
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
    assert run.outcomes == {"test_good[ws2]": "measured"}


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

    run = project.run("-x", ranks=2, env=mark)

    assert run.code != 0
    before, after = run.summary["benchmarks"]
    assert before["outcome"] == "measured", run.out + run.err
    assert after["outcome"] == "not_measured"
    assert said in after["reason"]
    stack = run.out.partition(f"Stack of rank {rank}")[2]
    assert ("in test_between" in stack) == ("sleep" in act)
    assert run.summary["status"] == "failed"
    wait_until_gone(mark)
