"""torchrun: the process with rank zero orders, prints and writes; its child and the others run."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.projects import QUICK, InlineProject

if TYPE_CHECKING:
    from tests.support.projects import Project, Run

pytestmark = pytest.mark.followed

MLP = """
import pytest
@pytest.mark.gpubench(config="mlp", ranks="any")
def test_mlp(gpubench, trainer, model):
    assert type(model).__name__ == "DistributedDataParallel"
    gpubench(trainer.step, samples=trainer.samples_per_step)
"""

SHARDED = """
@pytest.mark.gpubench(config="mlp", ranks="any")
@pytest.mark.gpubench_set("distributed.parallelism=fsdp2", "data.global_batch_size=64")
def test_sharded(gpubench, trainer, model):
    assert type(model).__name__ == "FSDPSequential"
    gpubench(trainer.step, samples=trainer.samples_per_step)
"""

TELLTALE = """
import atexit, logging, os, sys
from pathlib import Path
RANK = os.environ["RANK"]
opened = []
def note(event, arguments):
    if event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR):
        opened.append(Path(str(arguments[0])).name)
sys.addaudithook(note)
atexit.register(lambda: Path(f"opened-by-{RANK}-{os.getpid()}").write_text("\\n".join(opened)))
def pytest_runtest_call():
    logging.warning("said by rank " + RANK)
"""


TOGETHER = {
    "conftest.py": TELLTALE,
    "test_it.py": MLP + SHARDED,
    "test_headline.py": """
        import time, pytest
        @pytest.mark.gpubench(ranks="any")
        def test_uneven(gpubench, process_group):
            gpubench(lambda: time.sleep(0.02 * (1 + process_group.world.rank)))
    """,
    "test_sizes.py": """
        import pytest
        def test_one(gpubench): gpubench(lambda: None)
        @pytest.mark.gpubench(ranks=(2, 4))
        def test_two(gpubench): gpubench(lambda: None)
        @pytest.mark.gpubench(ranks=">=3")
        def test_three(gpubench): gpubench(lambda: None)
    """,
    "test_checks.py": """
        import pytest
        @pytest.mark.gpubench(ranks="any")
        def test_broken(request, gpubench, process_group):
            from gpubench_plugin.bench.subjects import subjects_of
            from gpubench_plugin.core.records import Check
            def check(log):
                if process_group.world.rank == 1:
                    raise RuntimeError("no luck")
                return Check()
            subjects_of(request).add_check(check)
            gpubench(lambda: None)
        @pytest.mark.gpubench(ranks="any")
        def test_after_broken(gpubench):
            gpubench(lambda: None)
    """,
    "test_endings.py": """
        import os, pytest
        pytestmark = pytest.mark.gpubench(ranks="any")
        RANK = int(os.environ["RANK"])
        def test_fails_after(gpubench):
            gpubench(lambda: None)
            assert RANK == 0
        def test_skips(gpubench):
            if RANK == 1:
                pytest.skip("not here")
            gpubench(lambda: None)
        def test_good(gpubench):
            gpubench(lambda: None)
    """,
}
"""Benchmarks of one session: what one of them does is nothing to the next."""


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One session of two ranks over all those files."""
    project = InlineProject(tmp_path_factory.mktemp("together"))
    for name, text in TOGETHER.items():
        project.write(name, text)
    files = ("--benchmark-json=saved.json", "--junitxml=unit.xml", "--log-file=log.txt")
    run = project.run("--preset=tiny", *files, ranks=2)
    assert run.code != 0
    assert "INTERNALERROR" not in run.out + run.err
    return run


def recorded(run: Run, file: str) -> dict[str, dict[str, Any]]:
    """The records of one file's benchmarks by name."""
    return {
        benchmark["name"].partition("[")[0]: benchmark
        for benchmark in run.summary["benchmarks"]
        if benchmark["id"].startswith(f"{file}::")
    }


def outcomes(run: Run, file: str) -> dict[str, str]:
    """The outcomes of one file's benchmarks by name."""
    return {name: benchmark["outcome"] for name, benchmark in recorded(run, file).items()}


def test_two_ranks_train_print_once_and_write_one_run(together: Run) -> None:
    """The headline is of both ranks: samples of both, in one run directory, printed once.

    They train under DDP, each with a batch of its own, or as the benchmark says. What pytest
    writes for the session, rank zero alone writes.
    """
    run, folder = together, together.results.parent
    assert run.out.count("test session starts") == 1
    benchmark, sharded = recorded(run, "test_it.py").values()
    assert benchmark["id"] == "test_it.py::test_mlp[fp32-ranks2]"
    assert (benchmark["outcome"], benchmark["world_size"]) == ("measured", 2)
    assert benchmark["configuration"]["distributed"]["world_size"] == 2
    (line,) = (line for line in run.journal if line.get("id") == benchmark["id"])
    samples = line["samples"]
    both = 2 * benchmark["configuration"]["training"]["batch_size"] * sum(samples["block_calls"])
    expected = both / sum(samples["block_s"])
    assert abs(benchmark["metrics"]["samples_per_s"]["value"] / expected - 1) < 1e-9
    assert "rank_skew_s" in benchmark["metrics"]
    assert [
        (
            of["configuration"]["distributed"]["scaling"],
            of["configuration"]["training"]["batch_size"],
        )
        for of in (benchmark, sharded)
    ] == [("weak", 64), ("strong", 32)]
    assert sharded["correctness"]["differs_from_one_process"] is None
    assert (folder / "saved.json").exists()
    files = {"unit.xml", "nodeids", "rank-0.jsonl", "rank-1.jsonl"}
    opened = [sorted(files & {*f.read_text().split()}) for f in folder.glob("opened-by-*")]
    assert sorted(opened) == [["nodeids", "unit.xml"], ["rank-0.jsonl"], ["rank-1.jsonl"]]
    assert "said by rank" not in (folder / "log.txt").read_text(), "it is in the ranks' reports"


def test_headline_is_the_slowest_ranks(together: Run) -> None:
    """A rank that sleeps twice as long decides the step time; the fast rank does not hide it."""
    metrics = recorded(together, "test_headline.py")["test_uneven"]["metrics"]
    assert metrics["step_time_s"]["value"] >= 0.04
    assert metrics["rank_skew_s"]["value"] >= 0.015


def test_benchmark_for_one_rank_is_skipped_with_the_reason(together: Run) -> None:
    """World sizes that do not fit are skipped; the others are measured."""
    expected = {"test_one": "skipped", "test_two": "measured", "test_three": "skipped"}
    assert outcomes(together, "test_sizes.py") == expected
    assert "runs on 1 rank only" in recorded(together, "test_sizes.py")["test_one"]["reason"]


def test_failed_check_on_one_rank_fails_the_benchmark_on_both(together: Run) -> None:
    """The ranks exchange what their checks found, so that none waits for a rank that gave up."""
    expected = {"test_broken": "failed", "test_after_broken": "measured"}
    assert outcomes(together, "test_checks.py") == expected
    assert "rank 1: no luck" in recorded(together, "test_checks.py")["test_broken"]["reason"]


def test_failure_or_skip_on_one_rank_is_everybodys(together: Run) -> None:
    """A test that ends differently on the ranks is mismatched_ranks; the next one is measured."""
    assert outcomes(together, "test_endings.py") == {
        "test_fails_after": "mismatched_ranks",
        "test_skips": "mismatched_ranks",
        "test_good": "measured",
    }
    assert "rank 1 failed" in recorded(together, "test_endings.py")["test_fails_after"]["reason"]


@pytest.mark.exhaustive
def test_ranks_that_collect_different_benchmarks_run_those_of_rank_zero(project: Project) -> None:
    """In whatever order; what another rank lacks is mismatched, what it has more is said."""
    project.write(
        "conftest.py",
        """
        import os
        def pytest_collection_modifyitems(items):
            if os.environ["RANK"] == "1": items.reverse()
        """,
    )
    project.write(
        "test_it.py",
        """
        import os, pytest
        pytestmark = pytest.mark.gpubench(ranks="any")
        RANK = os.environ["RANK"]
        def test_first(gpubench): gpubench(lambda: None)
        if RANK == "0":
            def test_lacking(gpubench): gpubench(lambda: None)
        if RANK == "1":
            def test_more(gpubench): gpubench(lambda: None)
        def test_last(gpubench): gpubench(lambda: None)
        """,
    )

    run = project.run(ranks=2)

    assert run.code != 0
    assert run.outcomes == {
        "test_first[ranks2]": "measured",
        "test_lacking[ranks2]": "mismatched_ranks",
        "test_last[ranks2]": "measured",
    }, run.out + run.err
    assert "only rank 1 collected test_it.py::test_more[ranks2]" in run.out


@pytest.mark.exhaustive
def test_rank_without_benchmarks_is_named(project: Project) -> None:
    """Nobody waits for a rank that selected none, and whoever restarts ranks is told not to."""
    project.write("pytest.ini", "[pytest]\ngpubench_timeout_s = 3\n")
    project.write(
        "test_it.py",
        """
        import os, pytest
        def test_ordinary(): pass
        if os.environ["RANK"] == os.environ["WITH"]:
            @pytest.mark.gpubench(ranks="any")
            def test_x(gpubench): gpubench(lambda: None)
        """,
    )

    for one, other in (0, 1), (1, 0):
        run = project.run(ranks=2, env={"WITH": str(one)})

        assert run.code != 0
        said = f"rank {other} of 2 did not join within 3 s (gpubench_timeout_s)"
        assert run.err.count(said) == 1, run.out + run.err

    world = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "WITH": "0"}
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    again = project.run(env={**world, **meeting, "TORCHELASTIC_RESTART_COUNT": "1"})

    assert again.code == pytest.ExitCode.USAGE_ERROR
    assert "start torchrun with --max-restarts=0" in again.err


@pytest.mark.exhaustive
@pytest.mark.parametrize("option", ["--training.batch_siz=1", "--precision=fp23"])
def test_usage_error_is_said_once(project: Project, option: str) -> None:
    """Rank zero alone says what is wrong with the command line."""
    project.write("test_it.py", MLP)

    run = project.run(option, ranks=2)

    assert run.code != 0
    assert run.err.count("did you mean") == 1
    assert run.directories == []


@pytest.mark.exhaustive
def test_plain_tests_of_all_ranks_run_together(project: Project) -> None:
    """They meet in collectives, may skip on some ranks, and fail where they fail on any."""
    project.write(
        "test_it.py",
        """
        import os, pytest, torch
        from torch import distributed as dist
        RANK = int(os.environ["RANK"])
        @pytest.mark.gpubench(ranks="any")
        def test_mine(gpubench): gpubench(lambda: None)
        @pytest.fixture(scope="module")
        def group():
            dist.is_initialized() or dist.init_process_group("gloo")
        def test_meets(group):
            total = torch.ones(1)
            dist.all_reduce(total)
            assert total.item() == 2
        def test_skips(group):
            if RANK == 1: pytest.skip("of rank 0")
        def test_fails():
            assert RANK == 0
        def test_theirs(benchmark):
            benchmark(sum, [1])
        def test_parts(subtests):
            with subtests.test("first"): assert RANK == 0
        """,
    )

    run = project.run("-v", "--benchmark-json=saved.json", ranks=2)

    assert run.code != 0
    said = {
        line.split()[0].partition("::")[2]: line.split()[1]
        for line in run.out.splitlines()
        if line.startswith("test_it.py::test_") and "test_parts" not in line
    }
    assert said == {
        "test_mine[ranks2]": "PASSED",
        "test_meets": "PASSED",
        "test_skips": "PASSED",
        "test_fails": "FAILED",
        "test_theirs": "PASSED",
    }, run.out + run.err
    assert "Traceback" not in run.out.partition("short test summary")[2].partition("Error")[0]
    assert "SUBFAILED[first] test_it.py::test_parts" in run.out
    names = [b["name"] for b in json.loads((project.path / "saved.json").read_text())["benchmarks"]]
    assert names == ["test_mine[ranks2]", "test_theirs"]


@pytest.mark.exhaustive
def test_sessions_may_follow_each_other_on_one_store(project: Project) -> None:
    """Each finds its own controller, and makes groups of its own."""
    tests = "def test_mine(gpubench, process_group): gpubench(lambda: None)\n"
    mark = "import pytest\npytestmark = pytest.mark.gpubench(ranks='any')\n"
    project.write("test_it.py", mark + tests)
    pytest_command = f"{sys.executable} -m pytest {' '.join(QUICK)} test_it.py"
    project.write("twice.sh", f"{pytest_command} && {pytest_command}\n")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command = [*torchrun, "--nproc-per-node=2", "--no-python", "bash", "twice.sh"]
    done = subprocess.run(
        command, cwd=project.path, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("1 passed") == 2


@pytest.mark.exhaustive
def test_suite_without_benchmarks_of_ours_is_untouched(project: Project) -> None:
    """Its fixtures make the group in the processes that torchrun started, as they always did."""
    project.write(
        "test_it.py",
        """
        import os, pytest
        from torch import distributed as dist
        @pytest.fixture(scope="session", autouse=True)
        def group():
            dist.init_process_group("gloo")
            yield
            dist.destroy_process_group()
        def test_parent(group):
            dist.barrier()
            open(f"parent-{dist.get_rank()}", "w").write(str(os.getppid()))
        """,
    )

    run = project.run(ranks=2)

    assert run.code == 0, run.out + run.err
    assert run.out.count("1 passed") == 2
    assert len({file.read_text() for file in project.path.glob("parent-?")}) == 1, "the agent"
    assert run.directories == []


STARTS = {
    "torchrun": {},
    "torchrun without a shared store": {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
    "plain variables": None,
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("start", STARTS)
def test_ranks_may_be_started_in_three_ways(project: Project, start: str) -> None:
    """Whoever serves the store; groups of the user's own meet in it as well."""
    project.write(
        "test_it.py",
        """
        import pytest, torch
        from torch import distributed as dist
        @pytest.fixture
        def group():
            dist.init_process_group("gloo")
            yield
            dist.destroy_process_group()
        def test_own(group):
            dist.barrier()
        @pytest.mark.gpubench(ranks="any")
        def test_mine(gpubench, process_group):
            gpubench(lambda: dist.all_reduce(torch.ones(1)))
        """,
    )
    env = STARTS[start]
    if env is not None:
        run = project.run(ranks=2, env=env)
        assert run.code == 0, run.out + run.err
        assert run.outcomes == {"test_mine[ranks2]": "measured"}
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    world = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    processes = [
        project.start(env={**world, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in (1, 0)
    ]
    said = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    assert said[0][0] == ""
    assert "1 measured" in said[1][0]


@pytest.mark.exhaustive
@pytest.mark.parametrize("what", ["dist.init_process_group('gloo')", "torch.cuda.is_initialized"])
def test_what_belongs_to_the_ranks_is_refused_in_a_conftest(project: Project, what: str) -> None:
    """Rank zero's tests run in another process, so that it could not use that."""
    fake = "torch.cuda.is_initialized = lambda: True"  # a device we lack
    made = fake if "cuda" in what else what
    project.write("conftest.py", f"import torch, torch.distributed as dist\n{made}\n")
    project.write("test_it.py", MLP)

    run = project.run(ranks=2)

    assert run.code != 0
    named = "CUDA" if "cuda" in what else "init_process_group"
    assert run.err.count("do it in a fixture") == 1, run.out + run.err
    assert named in run.err
    assert "INTERNALERROR" not in run.out + run.err
    assert run.directories == []


@pytest.mark.exhaustive
def test_debugger_is_refused(project: Project) -> None:
    """It needs the terminal, and one process."""
    project.write("test_it.py", MLP)
    run = project.run("--pdb", ranks=2)
    assert run.code != 0
    assert "without torchrun, with --world-size=1" in run.err
