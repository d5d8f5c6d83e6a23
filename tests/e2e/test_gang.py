"""Gangs: pytest starts the ranks itself, and everything of pytest's keeps its meaning."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.results.prune import unknown_files
from gpubench_plugin.results.run_directory import RunDirectory
from tests.support.projects import InlineProject

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.projects import Project, Run

pytestmark = pytest.mark.followed

SUITE = """
import gc, logging, os, pathlib, subprocess, sys, warnings
import pytest

RANK = os.environ.get("RANK", "none")

def note(request, what):
    with open(f"notes-{RANK}.txt", "a") as notes:
        print(what, request.node.name, os.getpid(), file=notes)

@pytest.fixture(scope="module")
def shared(request):
    note(request, "up")
    yield
    note(request, "down")

@pytest.mark.gpubench(ranks="any")
def test_both(gpubench, shared, request):
    note(request, "runs")
    alone = pathlib.Path("notes-none.txt")
    assert RANK == "none" or not alone.exists() or "down" in alone.read_text()
    warnings.warn("careful")
    if RANK == "1":
        warnings.warn("careless", DeprecationWarning)
    gpubench(lambda: None)

@pytest.mark.gpubench(config="mlp", ranks="any")
def test_mlp(gpubench, trainer, shared, request):
    note(request, "runs")
    assert gc.get_freeze_count() > 0, "collections do not look through torch, however it is run"
    gpubench(trainer.step, samples=trainer.samples_per_step)

@pytest.mark.gpubench(ranks=2)
def test_fails(gpubench):
    print(f"captured on rank {RANK}")
    raise ValueError(f"no luck on rank {RANK}")

@pytest.mark.gpubench(ranks=2)
def test_runs_pytest(gpubench, tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]")
    (tmp_path / "test_inner.py").write_text("def test_it(): pass")
    inner = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(inner, cwd=tmp_path, capture_output=True, text=True)
    assert "1 passed" in done.stdout, done.stdout + done.stderr

def test_one(gpubench):
    gpubench(lambda: None)

def test_no_benchmark(shared, request, tmp_path):
    logging.warning("logged by the controller")
    note(request, "runs")
"""


@dataclass(frozen=True)
class Noted:
    """A line that a test wrote: what, in which test, in which process."""

    what: str
    test: str
    pid: int


def noted(folder: Path, rank: str) -> list[Noted]:
    """The notes of a rank, or of the process without one."""
    lines = (folder / f"notes-{rank}.txt").read_text().splitlines()
    parts = [line.split() for line in lines]
    return [Noted(what, test, int(pid)) for what, test, pid in parts]


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, Run]:
    """The suite after one session over two world sizes."""
    project = InlineProject(tmp_path_factory.mktemp("suite"))
    project.write("test_suite.py", SUITE)
    flags = (
        *("--junitxml=junit.xml", "--durations=3", "--benchmark-save=first"),
        *("--log-file=session.log", f"--basetemp={project.path.parent / 'base'}"),
    )
    return project, project.run("--world-size=1,2", "-v", *flags)


def test_each_world_size_is_a_case_with_its_own_gang(suite: tuple[Project, Run]) -> None:
    """In the order of their sizes after what is no benchmark; misfits are skipped and say why."""
    _, run = suite

    assert run.code == 1, run.out + run.err
    assert "INTERNALERROR" not in run.out
    ids = [line.split()[0] for line in run.out.splitlines() if line.endswith("%]")]
    assert ids == [
        f"test_suite.py::{name}"
        for name in (
            "test_no_benchmark",
            "test_both",
            "test_mlp[fp32]",
            "test_fails",
            "test_runs_pytest",
            "test_one",
            "test_both[ranks2]",
            "test_mlp[fp32-ranks2]",
            "test_fails[ranks2]",
            "test_runs_pytest[ranks2]",
            "test_one[ranks2]",
        )
    ]
    reasons = {b["name"]: b["reason"] for b in run.summary["benchmarks"] if b["reason"]}
    assert reasons == {
        "test_fails": "runs on 2 ranks only: --world-size=2",
        "test_fails[ranks2]": "ValueError: no luck on rank 0",
        "test_runs_pytest": "runs on 2 ranks only: --world-size=2",
        "test_runs_pytest[ranks2]": "the test did not call gpubench",
        "test_one[ranks2]": "runs on 1 rank only: --world-size=1",
    }
    measured = {name for name, outcome in run.outcomes.items() if outcome == "measured"}
    assert measured == {
        *("test_both", "test_mlp[fp32]", "test_one"),
        *("test_both[ranks2]", "test_mlp[fp32-ranks2]"),
    }


def test_gang_lives_on_and_its_fixtures_with_it(suite: tuple[Project, Run]) -> None:
    """One process per rank and size; a module's fixture is set up once in each, and ended.

    That of the tests in this process ends before the gangs begin.
    """
    project, _ = suite

    alone, zero, one = (noted(project.path, rank) for rank in ("none", "0", "1"))

    assert [(n.what, n.test) for n in alone] == [
        ("up", "test_suite.py"),
        ("runs", "test_no_benchmark"),
        ("down", "test_suite.py"),
    ]
    single, double = (
        [
            ("up", "test_suite.py"),
            ("runs", both),
            ("runs", mlp),
            ("down", "test_suite.py"),
        ]
        for both, mlp in (
            ("test_both", "test_mlp[fp32]"),
            ("test_both[ranks2]", "test_mlp[fp32-ranks2]"),
        )
    )
    assert [(n.what, n.test) for n in zero] == [*single, *double]
    assert [(n.what, n.test) for n in one] == double
    assert len({n.pid for n in (*alone, *zero, *one)}) == 4
    assert len({n.pid for n in zero[:4]}) == len({n.pid for n in zero[4:]}) == 1


def test_report_holds_what_every_rank_captured_and_warned(suite: tuple[Project, Run]) -> None:
    """Output and tracebacks under the number of the rank, warnings with it."""
    _, run = suite

    failure = run.out.partition("_ test_fails[ranks2] _")[2].partition("\n====")[0]
    for rank in (0, 1):
        assert f"Captured stdout call [rank {rank}]" in failure
        assert f"captured on rank {rank}" in failure
        assert f"ValueError: no luck on rank {rank}" in failure
    assert "Traceback of rank 1" in failure
    assert "UserWarning: [all ranks] careful" in run.out
    assert "DeprecationWarning: [rank 1] careless" in run.out


def test_files_of_pytest_and_pytest_benchmark_are_written_once(suite: tuple[Project, Run]) -> None:
    """junit, durations, log, saved benchmarks: as if the tests had run in this process.

    Folders for temporary files are apart: each rank would empty that of the others.
    """
    project, run = suite

    cases = ET.parse(project.path / "junit.xml").getroot().iter("testcase")
    assert len(list(cases)) == 11
    assert "slowest 3 durations" in run.out
    (saved,) = (project.path / ".benchmarks").glob("*/*_first.json")
    loaded = json.loads(saved.read_text())
    stats = {b["name"]: b["stats"] for b in loaded["benchmarks"]}
    measured = [name for name, outcome in run.outcomes.items() if outcome == "measured"]
    assert sorted(stats) == sorted(measured)
    assert stats["test_mlp[fp32-ranks2]"]["rank_skew_s"] >= 0
    assert len(list((run.directory / "ranks").glob("ws*-rank-*.log"))) == 3
    assert unknown_files(RunDirectory(path=run.directory)) == []
    assert "logged by the controller" in (project.path / "session.log").read_text()
    bases = sorted(path.name for path in project.path.parent.glob("base*"))
    assert bases == ["base", "base-ws2-rank-0", "base-ws2-rank-1"]


def test_cache_knows_what_failed_and_collecting_starts_nothing(suite: tuple[Project, Run]) -> None:
    """``--lf`` and ``--ff`` choose and order; ``--collect-only`` leaves no run behind."""
    project, before = suite
    looks = ("--collect-only", "-q", "--world-size=1,2", "test_suite.py")

    last = project.run("--lf", *looks)
    first = project.run("--ff", *looks)

    assert "1/11 tests collected" in last.out, last.out
    assert last.out.startswith("test_suite.py::test_fails[ranks2]\n")
    assert first.out.startswith("test_suite.py::test_fails[ranks2]\n")
    assert first.directories == [before.directory]


def test_failed_again_streamed_compared_and_stopped(suite: tuple[Project, Run]) -> None:
    """The failed case alone runs with ``--lf``; with ``-s`` each line has its rank; -x ends it."""
    project, _ = suite
    flags = ("--ff", "-x", "-s", "-q", "-k", "ranks2", "--benchmark-compare", "--results-dir=again")

    run = project.run(*flags, "--world-size=1,2")

    assert run.code == 1, run.out + run.err
    for rank in (0, 1):
        assert f"[rank {rank}] captured on rank {rank}\n" in run.out
    assert "stopping after 1 failures" in run.out
    (summary,) = (project.path / "again").glob("*/*/summary.json")
    assert {b["name"]: b["outcome"] for b in json.loads(summary.read_text())["benchmarks"]} == {
        "test_fails[ranks2]": "failed",
        "test_both[ranks2]": "not_measured",
        "test_mlp[fp32-ranks2]": "not_measured",
        "test_runs_pytest[ranks2]": "not_measured",
        "test_one[ranks2]": "not_measured",
    }


OF_NUMBERS = re.compile(r"scaling_|.*_ci_|effective_|step_time_p9|peak_memory")
"""Metrics that are not there at some numbers: of samples, of ranks in the run, or in doubt."""


def described(run: Run, name: str) -> dict[str, Any]:
    """What is recorded of a benchmark, but for the numbers."""
    (one,) = (b for b in run.summary["benchmarks"] if b["name"] == name)
    measured = {"metrics", "flags", "ranks", "slowest_rank"}
    return {
        **{key: value for key, value in one.items() if key not in measured},
        "metrics": {
            metric: {**fields, "value": None}
            for metric, fields in one["metrics"].items()
            if not OF_NUMBERS.match(metric)
        },
        "keys": sorted(one),
    }


@pytest.mark.exhaustive
def test_ways_to_run_give_the_same_measurements(
    suite: tuple[Project, Run], project: Project
) -> None:
    """Plain, gang and torchrun: the same ids, parameters, metrics and configuration."""
    _, gang = suite
    project.write("test_suite.py", SUITE)

    plain = project.run("-k", "both or mlp", "--world-size=1")
    assert set(plain.outcomes.values()) == {"measured"}, plain.out
    assert described(plain, "test_mlp[fp32]") == described(gang, "test_mlp[fp32]")
    assert described(plain, "test_both") == described(gang, "test_both")

    (project.path / "results").rename(project.path / "plain")
    torchrun = project.run("-k", "both or mlp", ranks=2)
    assert described(torchrun, "test_mlp[fp32-ranks2]") == described(gang, "test_mlp[fp32-ranks2]")
    assert described(torchrun, "test_both[ranks2]") == described(gang, "test_both[ranks2]")


TWO = """
import os, pytest
def note():
    with open("pids", "a") as pids:
        print(os.getpid(), file=pids)
def test_first(gpubench):
    note()
    gpubench(lambda: None)
def test_second(gpubench):
    note()
    gpubench(lambda: None)
"""


@pytest.mark.exhaustive
def test_launches_are_fresh_processes_and_kept_apart(project: Project) -> None:
    """``--launches=2``: two processes for a benchmark, the samples of each, one number of both."""
    project.write("test_it.py", TWO)

    run = project.run("--launches=2", "-k", "first", "--benchmark-json=saved.json")

    assert run.code == 0, run.out + run.err
    assert len(set((project.path / "pids").read_text().split())) == 2
    (recorded,) = run.summary["benchmarks"]
    assert recorded["launches"] == 2
    (line,) = (line for line in run.journal if line["event"] == "benchmark")
    each = [launch["samples"]["durations_s"] for launch in line["per_launch"]]
    assert [len(durations) > 0 for durations in each] == [True, True]
    values = [launch["metrics"]["step_time_s"]["value"] for launch in line["per_launch"]]
    assert line["metrics"]["step_time_s"]["value"] == sum(values) / 2
    (saved,) = json.loads((project.path / "saved.json").read_text())["benchmarks"]
    assert saved["stats"]["step_time_s"] == sum(values) / 2


@pytest.mark.exhaustive
def test_isolated_benchmarks_have_processes_of_their_own(project: Project) -> None:
    """Also while nothing is measured: ``--benchmark-disable`` runs each once.

    Processes that do not start, after others did, cost their own benchmark only.
    """
    project.write(
        "conftest.py",
        """
        import os, sys
        if "RANK" in os.environ:
            with open("starts", "a+") as starts:
                print("one more", file=starts)
                starts.seek(0)
                if len(starts.readlines()) == 2:
                    sys.exit("no licence left")
        """,
    )
    project.write("test_it.py", f"{TWO}def test_third(gpubench): test_second(gpubench)")

    run = project.run("--isolate", "--benchmark-disable")

    assert run.code == 1, run.out + run.err
    assert "no licence left" in run.out
    assert len(set((project.path / "pids").read_text().split())) == 2
    assert run.outcomes == {
        "test_first": "not_measured",
        "test_second": "crashed",
        "test_third": "not_measured",
    }


@pytest.mark.exhaustive
def test_test_that_leaves_the_session_ends_it_on_all_ranks(project: Project) -> None:
    """``pytest.exit`` on one rank: the session ends at once, with its reason and return code."""
    project.write(
        "test_it.py",
        """
        import os, pytest
        pytestmark = pytest.mark.gpubench(ranks=2)
        def test_first(gpubench): gpubench(lambda: None)
        def test_second(gpubench, process_group):
            if os.environ["RANK"] == "1":
                pytest.exit("enough", returncode=7)
            process_group.agreement.barrier()
        def test_third(gpubench): gpubench(lambda: None)
        """,
    )

    run = project.run("--distributed.failure_grace_s=0.5", "--distributed.divergence_s=1000")

    assert run.code == 7, run.out + run.err
    assert "rank 1: enough" in run.out
    assert list(run.outcomes.values()) == ["measured", "not_measured", "not_measured"]


@pytest.mark.exhaustive
def test_rank_that_cannot_start_is_a_crash_with_its_words(project: Project) -> None:
    """Every benchmark of that size fails at once; the gang is not started again and again."""
    project.write(
        "conftest.py",
        """
        import os, signal, sys
        size = os.environ.get("WORLD_SIZE", "none")
        if size in ("none", "1") or os.environ["RANK"] == "1":
            with open("starts", "a") as starts:
                print(size, file=starts)
        if os.environ.get("RANK") == "1":
            if size == "3":
                os.kill(os.getpid(), signal.SIGKILL)
            sys.exit("no licence for rank 1")
        """,
    )
    project.write(
        "test_it.py",
        """
        import pytest
        @pytest.mark.gpubench(ranks=(2, 3))
        @pytest.mark.parametrize("n", range(3))
        def test_x(gpubench, n): gpubench(lambda: None)
        def test_one(gpubench): gpubench(lambda: None)
        """,
    )

    run = project.run("--world-size=1,2,3")

    assert run.code == 1, run.out + run.err
    assert list(run.outcomes.values()).count("crashed") == 6
    assert run.outcomes["test_one"] == "measured"
    killed = "SIGKILL (possibly the out-of-memory killer)"
    assert {b["reason"] for b in run.summary["benchmarks"] if b["outcome"] == "crashed"} == {
        "rank 1 exited with code 1 while the gang of 2 was starting",
        f"rank 1 was killed by {killed} while the gang of 3 was starting",
    }
    assert run.out.count("no licence for rank 1") == 1
    starts = (project.path / "starts").read_text().split()
    assert starts == ["none", "1", "2", "3", "3"]


@pytest.mark.parametrize(
    ("flags", "variables", "said"),
    [
        (("--pdb",), {}, "--world-size=1 and without --on, --isolate or --launches"),
        (("-n2",), {}, "-n"),
        ((), {"WORLD_SIZE": "2"}, "RANK is missing (set: WORLD_SIZE=2)"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(
    project: Project, flags: tuple[str, ...], variables: dict[str, str], said: str
) -> None:
    """Exit code 4, a line that names the flag, and nothing has started."""
    project.write(
        "test_it.py",
        "import pytest\n@pytest.mark.gpubench(ranks=2)\ndef test_x(gpubench): pass",
    )

    run = project.run(*flags, env=variables)

    assert run.code == 4, run.out + run.err
    assert said in run.out + run.err
    assert "Traceback" not in run.out + run.err
    assert run.directories == []


@pytest.mark.exhaustive
def test_ranks_of_torchrun_do_not_start_ranks(project: Project) -> None:
    """Under torchrun ``--world-size`` has nothing to say; rank zero says so even if it is late."""
    project.write(
        "test_it.py",
        "import os, time\n"
        "time.sleep(2 * (os.environ['RANK'] == '0'))\n"
        "def test_x(gpubench): gpubench(lambda: None)",
    )

    run = project.run("--world-size=2", ranks=2)

    assert run.code != 0
    said = "--world-size: pytest would start the ranks itself, but torchrun has already started 2"
    assert (run.out + run.err).count(said) == 1
    assert run.directories == []
