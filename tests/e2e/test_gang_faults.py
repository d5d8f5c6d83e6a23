"""A rank that dies, hangs, parts or runs out of memory costs one test, and never the session."""

from __future__ import annotations

import json
import signal
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.system.scratch import private_folder
from tests.support import faulty
from tests.support.processes import processes_with, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.support.projects import Project, Run

QUICK = ("--measure.by=steps", "--measure.steps=20", "--measure.warmup_s=0.001")

SIGKILL = """
def test_sigkill(gpubench, process_group):
    log(gpubench)
    meet()
    if RANK == 1: os.kill(os.getpid(), signal.SIGKILL)
    meet()
"""
FORKED = """
def test_forked(gpubench, process_group):
    meet()  # rank 0 is in its test when rank 1 dies
    if RANK == 1:
        if os.fork(): os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(600)
    meet()
"""
SEGFAULT = """
def test_segfault(gpubench, process_group):
    if RANK == 1: ctypes.string_at(0)
    meet()
"""
EXIT_3 = """
def test_exit_3(gpubench, process_group):
    log(gpubench)
    if RANK == 0: os._exit(3)
    meet()
"""
RAISE = """
def test_raise(gpubench, process_group):
    if RANK == 1: raise ValueError("no luck")
    meet()
"""
LEFT_OUT = """
def test_left_out(gpubench, process_group):
    if RANK == 1: meet()
"""
ENDLESS_LOOP = """
@pytest.mark.gpubench(ranks=2, timeout_s=3)
def test_endless(gpubench):
    log(gpubench)
    while True: pass
"""
SKIPS_EARLY = """
def test_skips_early(gpubench, process_group):
    if RANK == 1: pytest.skip("no data here")
    meet()
"""
ABSENT = """
if RANK != 1:
    def test_absent(gpubench): gpubench(lambda: None)
if RANK == 1:
    def test_extra(gpubench): gpubench(lambda: None)
"""
OOM_ON_ONE = """
def test_oom_on_one(gpubench, process_group):
    if RANK == 1: raise torch.OutOfMemoryError("Tried to allocate 2.00 GiB")
    meet()
"""


@dataclass(frozen=True)
class Fault:
    """What is expected of one test: its outcome, its reason's beginning, whose stacks show it."""

    source: str
    outcome: str
    reason: str = ""
    stacks: tuple[int, ...] = ()


DEATHS = {
    "sigkill": Fault(SIGKILL, "crashed", "rank 1 was killed by SIGKILL"),
    "forked": Fault(FORKED, "crashed", "rank 1 was killed by SIGKILL", (0,)),
    "segfault": Fault(SEGFAULT, "crashed", "rank 1 was killed by SIGSEGV"),
    "exit_3": Fault(EXIT_3, "crashed", "rank 0 exited with code 3"),
    "absent": Fault(ABSENT, "mismatched_ranks", "rank 1 did not collect the test"),
    "left_state": Fault(faulty.LEFT_STATE, "measured"),
    "half_done": Fault(faulty.HALF_DONE, "measured"),
}
DISAGREEMENTS = {
    "raise": Fault(
        RAISE, "failed", "rank 1: ValueError: no luck; then rank 0 timed out 1 s after", (0,)
    ),
    "left_out": Fault(LEFT_OUT, "hang", "rank 1 timed out 5 s after another rank passed", (1,)),
    "endless": Fault(ENDLESS_LOOP, "hang", "ranks 0-1 timed out after 3 s", (0, 1)),
    "skips_early": Fault(
        SKIPS_EARLY,
        "mismatched_ranks",
        "rank 1 skipped (no data here); then rank 0 timed out 1 s after another rank "
        "skipped (distributed.failure_grace_s)",
        (0,),
    ),
    "oom_on_one": Fault(OOM_ON_ONE, "oom", "rank 1: out of memory, requested 2.00 GiB", (0,)),
    "oom_on_both": Fault(faulty.OOM_ON_BOTH, "oom", "out of memory, requested 4.00 GiB"),
    "misconfigured": Fault(
        faulty.MISCONFIGURED, "misconfigured", "rank 1: data.path: not on this host"
    ),
    "group_timeout": Fault(faulty.GROUP_TIMEOUT, "failed", "RuntimeError: "),
}


def test_fault_costs_its_own_benchmark_only(project: Project, temporary: Path) -> None:
    """A rank that is killed, one that fails while another waits: the next one is measured."""
    faults = {"sigkill": DEATHS["sigkill"], "raise": DISAGREEMENTS["raise"]}
    run = run_matrix(project, temporary, faults)
    assert "ValueError: no luck" in section(run, "raise")


@pytest.mark.exhaustive
def test_fault_matrix_of_ranks_that_die(project: Project, temporary: Path) -> None:
    """Every fault has its verdict, names its ranks and shows where they were.

    The benchmark after each is measured.
    """
    run = run_matrix(project, temporary, DEATHS)

    assert "Fatal Python error: Segmentation fault" in section(run, "segfault")
    warned = (
        "test_half_done[ws2] left the process group in an unusable state; started a new gang of 2"
    )
    assert warned in " ".join(run.out.split())


@pytest.mark.exhaustive
def test_fault_matrix_of_ranks_that_live(project: Project, temporary: Path) -> None:
    """The same, where the ranks part or fail together, and none of their processes ends."""
    run_matrix(project, temporary, DISAGREEMENTS)


def run_matrix(project: Project, temporary: Path, faults: Mapping[str, Fault]) -> Run:
    """A run of the `faults`, each with what is expected of it; after the last one with DDP.

    The journal has what a benchmark logged before its fault.
    """
    sources = [fault.source for fault in faults.values()]
    project.write("test_it.py", faulty.module(sources, ddp=sources[-1:]))
    run = project.run(
        "--distributed.failure_grace_s=1",
        "--distributed.divergence_s=5",
        env={"TMPDIR": str(temporary), "TORCHINDUCTOR_CACHE_DIR": str(project.path / "compiled")},
    )
    unexpected = list(differences(run, faulty.with_healthy(faults, Fault("", "measured"))))
    assert unexpected == [], "\n".join([*unexpected, run.out, run.err])
    assert run.code == 1
    assert run.summary["status"] == "failed"
    for name, fault in faults.items():
        steps = [
            event["step"]
            for event in run.journal
            if event["event"] == "log" and f"::test_{name}[" in event["benchmark"]
        ]
        assert steps == [*range(900)] * ("log(gpubench)" in fault.source), name
    assert left_of(temporary) == []
    return run


@pytest.mark.exhaustive
def test_rank_that_ends_between_two_benchmarks_costs_none(
    project: Project, temporary: Path
) -> None:
    """Its gang is replaced with a warning, even where warnings are errors; both are measured.

    So is a gang that loses a rank while it starts.
    """
    project.write("conftest.py", KILLS_BETWEEN)
    project.write("test_it.py", TWO)

    run = project.run("-W", "error", env={"TMPDIR": str(temporary)})

    assert run.code == 0, run.out + run.err
    assert set(run.outcomes.values()) == {"measured"}
    said = " ".join(run.out.split())
    assert "between two benchmarks, rank 1 was killed by SIGKILL" in said
    assert "killer) while the gang of 2 was starting; started a new gang of 2" in said
    assert left_of(temporary) == []


KILLS_BETWEEN = """
import os, pathlib, signal, time
if os.environ.get("RANK") == "1" and not pathlib.Path("killed").exists():
    pathlib.Path("killed").touch()
    os.kill(os.getpid(), signal.SIGKILL)
def pytest_runtest_logfinish(nodeid):
    if "RANK" in os.environ or "test_first" not in nodeid:
        return
    pid = pathlib.Path("rank-1").read_text()
    os.kill(int(pid), signal.SIGKILL)
    def is_zombie():
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] == "Z"
    # The connection ends with the last of the threads.
    while not is_zombie() or len(os.listdir(f"/proc/{pid}/task")) > 1:
        time.sleep(0.01)
"""
TWO = """
import os, pathlib, pytest
pytestmark = pytest.mark.gpubench(ranks=2)
def test_first(gpubench):
    pathlib.Path(f"rank-{os.environ['RANK']}").write_text(str(os.getpid()))
    gpubench(lambda: None)
def test_second(gpubench): gpubench(lambda: None)
"""
ENDLESS = """
import os, pathlib, pytest, time
pytestmark = pytest.mark.gpubench(ranks=2)
def test_first(gpubench): gpubench(lambda: None)
def test_second(gpubench, process_group):
    pathlib.Path(f"rank-{os.environ['RANK']}").write_text(str(os.getpid()))
    if os.environ["RANK"] == "0":
        process_group.agreement.barrier()
    while True: pass
"""
LOADER = """
@pytest.fixture
def loader():
    import torch
    data = torch.utils.data.DataLoader(range(4), num_workers=1, persistent_workers=True)
    yield next(iter(data)), data
"""


def test_interrupt_ends_all_ranks_and_keeps_what_was_measured(
    project: Project, temporary: Path
) -> None:
    """Ctrl-C: exit code 2, an interrupted run with the earlier result, nothing left behind."""
    project.write("test_it.py", ENDLESS)
    process = project.start(*QUICK, env={"TMPDIR": str(temporary)})
    wait_until(lambda: all((project.path / f"rank-{rank}").exists() for rank in (0, 1)))

    process.send_signal(signal.SIGINT)

    out, err = process.communicate(timeout=60)
    assert process.returncode == 2, out + err
    (summary,) = (project.path / "results").glob("*/*/summary.json")
    recorded = json.loads(summary.read_text())
    assert recorded["status"] == "interrupted"
    assert [b["outcome"] for b in recorded["benchmarks"]] == ["measured", "not_measured"]
    assert left_of(temporary) == []


@pytest.mark.exhaustive
def test_no_rank_outlives_its_controller(project: Project, temporary: Path) -> None:
    """After SIGKILL of the controller the ranks are gone, waiting or computing, and their workers.

    The journal can be read, and the next gang removes the folder that is left.
    """
    source = ENDLESS.replace("(gpubench, process", "(loader, gpubench, process")
    project.write("test_it.py", source + LOADER)
    process = project.start(*QUICK, env={"TMPDIR": str(temporary)})
    wait_until(lambda: all((project.path / f"rank-{rank}").exists() for rank in (0, 1)))

    # The controller, and two ranks with a worker each.
    assert len(processes_with(f"TMPDIR={temporary}")) >= 5
    process.kill()
    process.communicate(timeout=60)

    wait_until(lambda: processes_with(f"TMPDIR={temporary}") == [])
    (journal,) = (project.path / "results").glob("*/*/metrics.jsonl")
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    assert [e["outcome"] for e in events if e["event"] == "benchmark"] == ["measured"]
    assert [path.name[:14] for path in temporary.glob("gpubench-*")] == ["gpubench-gang-"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(temporary))
        private_folder().remove()
    assert list(temporary.glob("gpubench-*")) == []


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder for temporary files of the runs alone, with a path short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        yield Path(folder)


def differences(run: Run, expected: Mapping[str, Fault]) -> Iterator[str]:
    """Where a run of the matrix is not as expected."""
    found = {name.removeprefix("test_").partition("[")[0]: name for name in run.outcomes}
    if list(found) != list(expected):
        yield f"recorded: {list(found)}"
    reasons = {b["name"]: b["reason"] or "" for b in run.summary["benchmarks"]}
    for name, fault in expected.items():
        outcome, reason = run.outcomes[found[name]], reasons[found[name]]
        if outcome != fault.outcome or not reason.startswith(fault.reason):
            yield f"{name}: {outcome}: {reason}"
        shown = section(run, name)
        for rank in fault.stacks:
            _, _, stack = shown.partition(f" Stack of rank {rank} ")
            if f"in test_{name}\n" not in stack.partition("\n---")[0]:
                yield f"{name}: no stack of rank {rank} in the test"


def section(run: Run, name: str) -> str:
    """What pytest's report says of one failed test."""
    _, _, rest = run.out.partition(f"_ test_{name}[ws2] _")
    return rest.partition("\n____")[0]


def left_of(temporary: Path) -> list[str]:
    """What still runs or lies about."""
    left = processes_with(f"TMPDIR={temporary}")
    return [*map(str, left), *(path.name for path in temporary.iterdir())]
