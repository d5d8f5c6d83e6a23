"""The arguments of the launches' pytest."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpubench_plugin.cli.ab.request import parse_arguments
from gpubench_plugin.core.errors import UsageProblem

HERE = Path("/repo/sub")


def arguments(*texts: str) -> tuple[str, ...]:
    return parse_arguments(texts, cwd=HERE, repository=Path("/repo"))


@pytest.mark.parametrize(
    "text",
    [
        "--resume=x",
        "--results-dir=x",
        "--gpubench-registry=none",
        "--launches=3",
        "--gate",
        "--gate-missing=fail",
    ],
)
def test_options_of_ab_itself_are_refused(text: str) -> None:
    """What the launches must not be given is refused with the reason."""
    with pytest.raises(UsageProblem, match="not allowed in the launches"):
        arguments(text)


@pytest.mark.parametrize("text", ["-n", "-n4", "--numprocesses=2", "--dist=load"])
def test_parallel_tests_are_refused(text: str) -> None:
    """Nothing is measured beside other work."""
    with pytest.raises(UsageProblem, match="beside other work"):
        arguments(text)


def test_absolute_paths_in_the_repository_become_relative() -> None:
    """Else both sides would collect the tests of the working tree."""
    given = ("/repo/sub/test_a.py::test[/repo/x]", "/elsewhere/test_b.py", "-k", "a or b", "-no")
    assert arguments(*given) == ("test_a.py::test[/repo/x]", *given[1:])
    assert arguments("/repo/test_c.py") == ("../test_c.py",)


@pytest.mark.parametrize("name", ["--rootdir", "--confcutdir", "-c", "--ignore"])
def test_options_that_name_a_place_in_the_tree_are_moved_too(name: str) -> None:
    """In either form; a place elsewhere, and the data of a benchmark, stay as they are."""
    assert arguments(f"{name}=/repo/sub") == (f"{name}=.",)
    assert arguments(name, "/repo") == (name, "..")
    assert arguments(f"{name}=/elsewhere", f"{name}=sub") == (f"{name}=/elsewhere", f"{name}=sub")
    assert arguments("--data.path=/repo/x.bin") == ("--data.path=/repo/x.bin",)


@pytest.mark.parametrize("name", ["--junitxml", "--benchmark-json", "--log-file", "--basetemp"])
def test_options_that_write_into_the_tree_are_refused(name: str) -> None:
    """Each launch would, and the tree would no longer be the same; elsewhere they may."""
    for given in ((f"{name}=x.xml",), (name, "x.xml"), (f"{name}=/repo/x.xml",), (name,)):
        with pytest.raises(UsageProblem, match=f"{name}=.*would write this file into the tree"):
            arguments("bench", *given)
    assert arguments(f"{name}=/elsewhere/x", name, "/tmp/x")
