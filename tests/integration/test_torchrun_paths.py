"""What a rank of torchrun collects without a path."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.projects import Project

RANK = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "::1", "MASTER_PORT": "9"}
TEST = "def test_plain(): pass\n"
BENCHMARK = "def test_b(gpubench): gpubench(lambda: None)\n"
LIMITED = "testpaths = tests"


def collected(project: Project, ini: str, *args: str, env: dict[str, str] = RANK) -> list[str]:
    """Files of what is collected in a project with tests and benchmarks."""
    project.write("pytest.ini", f"[pytest]\n{ini}\n")
    project.write("tests/test_a.py", TEST)
    project.write("benchmarks/test_b.py", BENCHMARK)
    project.write("more/test_c.py", BENCHMARK)
    run = project.run("--collect-only", "-q", *args, env=env, quick=False)
    assert run.code == 0, run.out + run.err
    return [line.partition("/")[0] for line in run.out.splitlines() if "::" in line]


@pytest.mark.parametrize(
    ("ini", "args", "folders"),
    [
        (LIMITED, (), ["benchmarks"]),
        (f"{LIMITED}\ngpubench_paths = more tests", (), ["more", "tests"]),
        ("gpubench_paths = more", (), ["more"]),
        ("", (), ["benchmarks", "more", "tests"]),
        (LIMITED, ("tests", "-k", "plain"), ["tests"]),
        (LIMITED, ("-k", "test_b"), ["benchmarks"]),
    ],
)
def test_a_rank_collects_the_benchmarks(
    project: Project, ini: str, args: tuple[str, ...], folders: list[str]
) -> None:
    """Instead of ``testpaths``, or what the key names; a path on the command line is obeyed."""
    assert collected(project, ini, *args) == folders


def test_what_is_no_rank_of_torchrun_collects_as_ever(project: Project) -> None:
    """Plain pytest obeys ``testpaths``; so does a rank where no test there is ours."""
    assert collected(project, f"{LIMITED}\ngpubench_paths = more", env={}) == ["tests"]
    project.write("pytest.ini", f"[pytest]\n{LIMITED}\n")
    (project.path / "benchmarks" / "test_b.py").rename(project.path / "benchmarks" / "b.py")
    (project.path / "benchmarks" / "test_gone.py").symlink_to("nowhere.py")
    for _ in range(2):
        run = project.run("--collect-only", env=RANK, quick=False)
        assert "torchrun without a path" not in run.out
        assert "test_plain" in run.out
        project.write("benchmarks/test_b.py", "def test_of_others(benchmark): benchmark(sum, [1])")


def test_the_header_names_the_paths(project: Project) -> None:
    """A reader sees why the tests are not there."""
    collected(project, LIMITED)
    run = project.run("--collect-only", env=RANK, quick=False)
    assert "torchrun without a path: collecting benchmarks\n" in run.out
