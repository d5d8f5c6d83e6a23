"""torchrun: every rank runs a pytest session, rank zero alone prints and writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.projects import InlineProject

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
atexit.register(lambda: Path(f"opened-by-{RANK}").write_text("\\n".join(opened)))
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
        class Broken:
            def __init__(self, rank): self.rank = rank
            def prepare(self, log):
                if self.rank == 1:
                    raise RuntimeError("no luck")
                from gpubench_plugin.core.records import Check
                return Check()
        @pytest.mark.gpubench(ranks="any")
        def test_broken(request, gpubench, process_group):
            from gpubench_plugin.bench.subjects import subjects_of
            subjects_of(request).add_check(Broken(process_group.world.rank))
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
    assert benchmark["id"] == "test_it.py::test_mlp[fp32-ws2]"
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
    opened = [(folder / f"opened-by-{rank}").read_text().split() for rank in (0, 1)]
    assert {"unit.xml", "nodeids", "rank-0.jsonl"} <= set(opened[0])
    assert set(opened[1]) & {"unit.xml", "nodeids", "rank-1.jsonl"} == {"rank-1.jsonl"}
    log = (folder / "log.txt").read_text()
    assert ("said by rank 0" in log, "said by rank 1" in log) == (True, False)
    assert " passed" in (run.directory / "ranks" / "rank-1.log").read_text()


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
def test_ranks_that_collect_different_benchmarks_are_refused(project: Project) -> None:
    """A selection that depends on the rank is found before anything is measured."""
    project.write(
        "test_it.py",
        """
        import os, pytest
        @pytest.mark.gpubench(ranks="any")
        def test_x(gpubench): gpubench(lambda: None)
        if os.environ["RANK"] == "1":
            test_y = test_x
        """,
    )

    run = project.run(ranks=2)

    assert run.code != 0
    said = "different benchmarks: 1 on rank 0, 2 on rank 1; only rank 1 collected test_it.py"
    assert run.err.count(said) == 1


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
