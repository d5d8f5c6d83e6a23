"""A rank that dies, hangs, parts or runs out of memory costs one test, whoever started the ranks.

Every fault is followed by a healthy benchmark: in the same session, or, where a lost rank ends the
session because nobody can replace it, as the first of a further one.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.support import faulty
from tests.support.processes import processes_with, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.support.projects import Project, Run

TOY: Final = Path(__file__).parents[1] / "support/toy_launcher"
NOT_REPLACED: Final = "these ranks cannot be replaced, so the session ends"


@dataclass(frozen=True)
class Fault:
    """What is expected of one test: its outcome, its reason's beginning, whose stacks show it.

    And what pytest's report of it says.
    """

    outcome: str
    reason: str = ""
    stacks: tuple[int, ...] = ()
    said: str = ""


HEALTHY = Fault("measured")
FAULTS = {
    "deaths": {
        "sigkill": Fault("crashed", "rank 1 was killed by SIGKILL"),
        "forked": Fault("crashed", "rank 1 was killed by SIGKILL", (0,)),
        "segfault": Fault(
            "crashed", "rank 1 was killed by SIGSEGV", said="Fatal Python error: Segmentation fault"
        ),
        "exit_3": Fault("crashed", "rank 0 exited with code 3"),
        "kills_zero": Fault("crashed", "rank 0 was killed by SIGKILL"),
    },
    "disagreements": {
        "raise": Fault(
            "failed",
            "rank 1: ValueError: no luck; then rank 0 timed out 2 s after another rank failed",
            (0,),
            said="ValueError: no luck",
        ),
        "left_out": Fault("hang", "rank 1 timed out 5 s after another rank passed", (1,)),
        "endless": Fault("hang", "ranks 0-1 timed out after 3 s", (0, 1)),
        "skips_early": Fault(
            "mismatched_ranks",
            "rank 1 skipped (no data here); then rank 0 timed out 2 s after another rank skipped "
            "(distributed.failure_grace_s)",
            (0,),
        ),
        "oom_on_one": Fault("oom", "rank 0: out of memory, requested 2.00 GiB", (1,)),
    },
    "survived": {
        "raise_after": Fault("mismatched_ranks", "the ranks had different outcomes: rank 0 passed"),
        "left_state": HEALTHY,
        "destroyed": HEALTHY,
        "caught": Fault("not_measured"),
        "fragile": Fault("failed"),
        "one_sided": Fault("mismatched_ranks"),
        "absent": Fault("mismatched_ranks", "rank 1 did not collect the test"),
        "skips": Fault("mismatched_ranks", "the ranks had different outcomes: rank 0 passed; rank"),
        "wrong_call": Fault("failed"),
        "oom_on_both": Fault("oom", "out of memory, requested 4.00 GiB"),
        "misconfigured": Fault("misconfigured", "rank 1: data.path: not on this host"),
        "all_raise": Fault("failed", "Mute: <exception str() failed>"),
        "group_timeout": Fault("failed", "RuntimeError: "),
        "half_done": HEALTHY,
    },
}


@dataclass(frozen=True, kw_only=True)
class Way:
    """How the ranks of a session are started: by torchrun, or by one of our launchers."""

    ranks: int = 0
    variables: Mapping[str, str] = field(default_factory=dict)
    replaces_ranks: bool = True
    gone: str = "never so"
    """How a rank's death is told where whoever started it was first to learn of its signal."""


WAYS = {
    "gang": Way(),
    "torchrun": Way(
        ranks=2, replaces_ranks=False, gone="rank 1 ended (see its launcher's own report)"
    ),
    "toy": Way(variables={"PYTHONPATH": str(TOY)}),
}


@pytest.mark.parametrize("way", WAYS)
def test_killed_rank_costs_its_own_benchmark_only(
    project: Project, temporary: Path, way: str
) -> None:
    """The next one is measured."""
    run_sessions(project, temporary, WAYS[way], {"sigkill": FAULTS["deaths"]["sigkill"]})
    assert (project.path / "toy-1").exists() == (way == "toy")


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("way", WAYS)
def test_fault_costs_its_own_benchmark_only(
    project: Project, temporary: Path, way: str, kind: str
) -> None:
    """Every fault has its verdict, names its ranks and shows where they were."""
    *_, last = run_sessions(project, temporary, WAYS[way], FAULTS[kind])
    if kind == "survived":
        warned = "test_half_done[ranks2] left the process group in an unusable state; started a new"
        assert (warned in " ".join(last.out.split())) == WAYS[way].replaces_ranks


LATE = """
import os, time
def pytest_sessionfinish():
    if os.environ.get("RANK") == "1": raise OSError("too late")
"""


@pytest.mark.slow
@pytest.mark.parametrize("way", ["gang", pytest.param("torchrun", marks=pytest.mark.exhaustive)])
def test_fault_after_the_last_test_costs_no_result(project: Project, way: str) -> None:
    """A rank's error at its end is told, and what was measured is recorded and shown."""
    project.write("conftest.py", LATE)
    project.write("test_it.py", faulty.module((), ddp=()))
    run = project.run(ranks=WAYS[way].ranks)
    assert run.summary["status"] == "complete"
    assert set(run.outcomes.values()) == {"measured"}
    assert f"{len(run.outcomes)} measured" in run.out, run.out + run.err
    told = "after their last test, rank 1 exited with code" in " ".join(run.out.split())
    assert (run.code, told) == ((0, True) if way == "gang" else (1, told))


def run_sessions(
    project: Project, temporary: Path, way: Way, faults: Mapping[str, Fault]
) -> list[Run]:
    """Runs of all `faults`, in as few sessions as the way allows, each with what is expected."""
    sessions = [faults]
    if not way.replaces_ranks and faults is not FAULTS["survived"]:
        sessions = [*({name: fault} for name, fault in faults.items()), {}]
    runs = [run_session(project, temporary, way, session) for session in sessions]
    unexpected = [
        difference
        for run, session in zip(runs, sessions, strict=True)
        for difference in differences(run, session, way)
    ]
    assert unexpected == [], "\n".join([*unexpected, *(run.out + run.err for run in runs)])
    return runs


def run_session(project: Project, temporary: Path, way: Way, faults: Mapping[str, Fault]) -> Run:
    """A run of `faults` amid healthy benchmarks, the last of which uses DDP; nothing is left."""
    project.write("test_it.py", faulty.module(faults, ddp=[*faults][-1:]))
    results = project.path / "-".join(["results", *faults])
    env = {"TMPDIR": str(temporary), "TORCHINDUCTOR_CACHE_DIR": str(project.path / "compiled")}
    run = project.run(
        "--distributed.failure_grace_s=2",
        "--distributed.divergence_s=5",
        f"--results-dir={results}",
        env={**env, **way.variables},
        ranks=way.ranks,
    )
    wait_until(lambda: processes_with(f"TMPDIR={temporary}") == [])
    assert [*temporary.glob("gpubench-*")] == []
    return replace(run, results=results)


def differences(run: Run, faults: Mapping[str, Fault], way: Way) -> Iterator[str]:
    """Where a run is not as expected; the journal has what a benchmark logged before its fault."""
    benchmarks = {
        b["name"].removeprefix("test_").partition("[")[0]: b for b in run.summary["benchmarks"]
    }
    expected = faulty.with_healthy(faults, HEALTHY)
    if list(benchmarks) != list(expected):
        yield f"recorded: {list(benchmarks)}"
    if not way.replaces_ranks and len(faults) == 1:
        *_, fault, _ = benchmarks.values()
        reason = f"{fault['name']}: {fault['reason']}; {NOT_REPLACED}"
        expected[[*expected][-1]] = Fault("not_measured", reason)
    if (run.code, run.summary["status"]) != ((1, "failed") if faults else (0, "complete")):
        yield f"ended with {run.code}: {run.summary['status']}"
    for name, fault in expected.items():
        outcome, reason = benchmarks[name]["outcome"], benchmarks[name]["reason"] or ""
        if outcome != fault.outcome or not reason.startswith((fault.reason, way.gone)):
            yield f"{name}: {outcome}: {reason}"
        if fault.said not in section(run, name) + run.err:  # torchrun's ranks write to its streams
            yield f"{name}: not said: {fault.said}"
        for rank in fault.stacks:
            _, _, stack = section(run, name).partition(f" Stack of rank {rank} ")
            if f"in test_{name}\n" not in stack.partition("\n---")[0]:
                yield f"{name}: no stack of rank {rank} in the test"
        events = [e for e in run.journal if f"::test_{name}[" in e.get("benchmark", "")]
        steps = [event["step"] for event in events if event["event"] == "log"]
        if steps != [*range(faulty.logged(name))]:
            yield f"{name}: {len(steps)} steps in the journal"


def section(run: Run, name: str) -> str:
    """What pytest's report says of one failed test."""
    _, _, rest = run.out.partition(f"_ test_{name}[ranks2] _")
    return rest.partition("\n____")[0]


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder for temporary files of the runs alone, with a path short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        yield Path(folder)
