"""The memory of a benchmark on a CPU: its own, whatever ran before, and whether it grows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.projects import Project, Run

MIB = 2**20

BENCHMARKS = """
import pytest, torch

def test_big(gpubench):
    kept = [torch.ones(1000, 1000) for _ in range(16)]
    gpubench(lambda: [a + a for a in kept])

def test_copy(gpubench):
    given = torch.ones(2**18)
    gpubench(lambda: given.clone())

@pytest.mark.gpubench(config="mlp")
def test_mlp(gpubench, trainer):
    gpubench(trainer.step)

@pytest.mark.gpubench(config="resnet18")
def test_resnet(trainer, gpubench):
    gpubench(trainer.step)
"""


def peaks(run: Run) -> dict[str, float]:
    """The peak of each benchmark by the name of its function."""
    return {
        b["name"].partition("[")[0]: b["metrics"]["peak_memory_bytes"]["value"]
        for b in run.summary["benchmarks"]
    }


@pytest.mark.own_process
@pytest.mark.parametrize(
    "names", [("test_copy",), ("test_mlp", "test_resnet")], ids=["one", "others"]
)
@pytest.mark.exhaustive
def test_a_benchmark_takes_as_much_alone_as_after_others(
    project: Project, names: tuple[str, ...]
) -> None:
    """The peak agrees within 2% or 1 MiB, though the process has grown; that has its own name."""
    project.write("test_it.py", BENCHMARKS)

    run = project.run("--preset=tiny", "-k", " or ".join(["test_big", *names]))
    together, process = peaks(run), run.summary["benchmarks"][0]["metrics"]
    run.directory.rename(project.path / "together")

    assert process["process_peak_memory_bytes"]["value"] > 50 * MIB
    for name in names:
        run = project.run("--preset=tiny", "-k", name)
        alone = peaks(run)[name]
        run.directory.rename(project.path / name)
        assert alone > 0
        assert abs(together[name] - alone) <= max(0.02 * alone, MIB)


def test_tensors_of_fixtures_and_of_the_step_count(project: Project) -> None:
    """What the test made before, and what a call holds at once, to the byte."""
    project.write("test_it.py", BENCHMARKS)

    run = project.run("-k", "test_copy or test_big")

    assert peaks(run) == {"test_copy": 2 * MIB, "test_big": 2 * 16 * 4e6}


SHARED = """
import functools, pytest, torch

@functools.cache
def weights():
    return torch.ones(5_000_000)

@pytest.fixture(scope="module")
def matrix():
    return torch.ones(1000, 1000)

EARLY = torch.ones(500_000)

@pytest.mark.parametrize("turn", ["first", "second"])
def test_cached(gpubench, turn):
    made = weights()
    gpubench(lambda: made.sum())

def test_early(gpubench):
    gpubench(lambda: EARLY.sum())

@pytest.mark.parametrize("turn", ["first", "second"])
def test_fixture(gpubench, matrix, precision, turn):
    gpubench(lambda: matrix @ matrix)

def test_neither(gpubench):
    gpubench(lambda: torch.ones(250_000))
"""


def test_shared_tensors_belong_to_each_that_works_on_them(project: Project) -> None:
    """Whoever built them, and to none that leaves them alone."""
    project.write("test_it.py", SHARED)

    run = project.run()

    found = {
        b["name"]: b["metrics"]["peak_memory_bytes"]["value"] for b in run.summary["benchmarks"]
    }
    first, second, early, *matrices, neither = found.values()
    assert abs(first - 20e6) < 1000
    assert second == first
    assert abs(early - 2e6) < 1000
    assert matrices == [8e6, 8e6]
    assert neither == 1e6


@pytest.mark.exhaustive
@pytest.mark.own_process
def test_a_leak_is_flagged(project: Project) -> None:
    """A step that keeps something of every call, also forty bytes of calls too short to be timed.

    It is told apart from one that does not.
    """
    project.write(
        "test_it.py",
        """
        import pytest, torch
        few = pytest.mark.gpubench_set("measure.steps=40")
        @few
        def test_leaks(gpubench):
            kept = []
            gpubench(lambda: kept.append(torch.ones(2**18)))
        @few
        def test_holds_still(gpubench):
            gpubench(lambda: torch.ones(2**18))
        @pytest.mark.gpubench_set("measure.steps=1000000")
        def test_never_ends(gpubench):
            kept = []
            gpubench(lambda: kept.append(len(kept)))
        """,
    )

    run = project.run("--measure.by=steps", quick=False)

    flags = [b["flags"] for b in run.summary["benchmarks"]]
    assert ["growing_memory" in one for one in flags] == [True, False, True]


def test_fixtures_count_wherever_they_stand(project: Project) -> None:
    """The device is prepared before them: their tensors are the benchmark's, and seeds hold."""
    project.write(
        "test_it.py",
        """
        import pytest, torch
        @pytest.fixture
        def weights():
            return torch.rand(1_000_000)
        def test_before(weights, gpubench):
            gpubench.record("first", weights[0].item())
            gpubench(lambda: weights.sum())
        def test_after(gpubench, weights):
            gpubench.record("first", weights[0].item())
            gpubench(lambda: weights.sum())
        def test_device_first(process_group, torch_device, weights, gpubench):
            gpubench.record("first", weights[0].item())
            gpubench(lambda: weights.sum())
        """,
    )

    run = project.run()

    before, after, device_first = (
        {name: metric["value"] for name, metric in one["metrics"].items()}
        for one in run.summary["benchmarks"]
    )
    assert before["peak_memory_bytes"] == after["peak_memory_bytes"] > 4e6
    assert before["first"] == after["first"] == device_first["first"]
