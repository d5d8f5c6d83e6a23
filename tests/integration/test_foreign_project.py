"""A project that uses none of our fixtures sees no change, and keeps the names it owns."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.projects import Project

FOREIGN = """
import pytest

@pytest.fixture(params=["a", "b"])
def precision(request):
    return request.param

@pytest.mark.parametrize("world_size", [1, 2])
def test_own_names(world_size, precision):
    assert world_size in (1, 2)

def test_fails():
    assert 1 == 2

@pytest.mark.skip(reason="not today")
def test_skipped():
    pass

def test_plain_benchmark(benchmark):
    benchmark.pedantic(lambda: None)
"""


@pytest.mark.parametrize("args", [("-v",), ("-q",), ("--collect-only",), ("-rA", "-x")])
def test_output_exit_code_and_files_are_unchanged(project: Project, args: tuple[str, ...]) -> None:
    """But for pytest's own line of plugins, a session looks as it does without the plugin."""
    project.write("test_it.py", FOREIGN)

    def seen(*more: str) -> tuple[int, str, str, list[str]]:
        run = project.run(*args, *more, "-p", "no:cacheprovider", "--benchmark-quiet", quick=False)
        files = sorted(str(f.relative_to(project.path)) for f in project.path.rglob("*"))
        return run.code, _timeless(run.out), run.err, [f for f in files if "__pycache__" not in f]

    assert seen() == seen("-p", "no:gpubench")


@pytest.mark.own_process
def test_torchrun_output_of_an_unrelated_project_is_unchanged(project: Project) -> None:
    """Under torchrun the ranks of a session without benchmarks all print, as they always did."""
    project.write("test_it.py", "def test_x(): pass\n")

    run = project.run(ranks=2, quick=False)

    assert run.code == 0, run.out + run.err
    assert run.out.count("1 passed") == 2


def test_conftest_that_owns_device_keeps_it(project: Project) -> None:
    """A short name somebody else registered is theirs; ours then has its long form only."""
    project.write(
        "conftest.py",
        """
        def pytest_addoption(parser):
            parser.addoption("--device", choices=["tpu", "gpu"])
        """,
    )
    project.write(
        "test_it.py",
        """
        def test_x(request, gpubench, torch_device):
            assert request.config.getoption("--device") == "tpu"
            assert torch_device.type == "cpu"
            gpubench(lambda: None)
        """,
    )

    run = project.run("--device=tpu", "--gpubench-device=cpu")

    assert run.outcomes == {"test_x": "measured"}, run.out + run.err


def test_values_with_spaces_and_spaced_options_work(project: Project) -> None:
    """A dot key takes its value after ``=`` or as the next argument, spaces included."""
    project.write(
        "test_it.py",
        """
        def test_x(gpubench, gpubench_config):
            assert gpubench_config.experiment.notes == "on a Monday"
            assert gpubench_config.training.batch_size == 3
            assert gpubench_config.experiment.seed == 7
            gpubench(lambda: None)
        """,
    )

    run = project.run(
        ".",
        "--experiment.notes=on a Monday",
        "--training.batch_size",
        "3",
        "--set",
        "experiment.seed=7",
    )

    assert run.outcomes == {"test_x": "measured"}, run.out + run.err


def _timeless(out: str) -> str:
    """`out` without durations and without the line that lists the plugins."""
    lines = [line for line in out.splitlines() if not line.startswith("plugins:")]
    return re.sub(r"in \d+\.\d+s", "in a while", "\n".join(lines))
