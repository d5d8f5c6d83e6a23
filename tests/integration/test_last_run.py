"""Sessions that say what changed against the last run: ``--baseline=last``, as a default too."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from tests.support.messages import mentions

if TYPE_CHECKING:
    from tests.support.projects import Project

SUITE = """
def test_first(gpubench):
    gpubench(lambda: sum(range(2000)), samples=4)

def test_second(gpubench):
    gpubench(lambda: sum(range(2000)), samples=4)
"""
BY_DEFAULT = "[pytest]\ngpubench_baseline = last\n"
WIDE = {"COLUMNS": "200"}


def test_every_session_says_what_changed_against_the_last_one(project: Project) -> None:
    """Without a set-up step, and labelled; the first one and new benchmarks pass."""
    project.write("pytest.ini", BY_DEFAULT)
    project.write("test_it.py", SUITE)

    first = project.run("-k", "first", env=WIDE)

    assert first.code == 0, first.out + first.err
    assert mentions(first.out, "baseline: last (", "this machine; threshold")
    assert "no earlier run: this is the first one" in first.out
    assert "no baseline" not in first.out

    second = project.run(env=WIDE)

    assert second.code == 0, second.out + second.err
    (before,) = first.out.split("recorded in ")[1:]
    run_id = before.split()[0].rpartition("/")[2]
    assert re.search(rf"compared with {run_id} \(\d+ seconds? ago", second.out)
    assert "threshold, not statistical\n" in second.out
    assert re.search("^new: second: ", second.out, re.MULTILINE)
    (directory,) = (folder for folder in second.directories if folder.name != run_id)
    document = json.loads((directory / "verdicts.json").read_text())
    assert document["base_label"] == "last"
    assert {one["id"] for one in document["benchmarks"] if one["method"] == "threshold"} == {
        "test_it.py::test_first"
    }


def test_a_gate_needs_more_than_the_last_run(project: Project) -> None:
    """Exit code 4 before anything is measured; a flag goes before the default."""
    project.write("pytest.ini", BY_DEFAULT)
    project.write("test_it.py", SUITE)

    plain = project.run("--gate")

    assert plain.code == 4
    assert "--gate: --baseline=last is a single run" in plain.err
    assert not plain.results.exists()
    assert project.run("--gate", "--baseline=./no.json").code == 4
    assert project.run("--gate=threshold", "-k", "first").code == 0


def test_a_project_without_benchmarks_does_not_notice_the_default(project: Project) -> None:
    """In the ini file or in ``addopts``: the same output, the same code, and no files."""
    project.write("test_it.py", "def test_x():\n    pass\n")

    def session(ini: str) -> tuple[int, str]:
        project.write("pytest.ini", ini)
        run = project.run("-p", "no:cacheprovider", quick=False)
        assert not run.results.exists()
        return run.code, re.sub(r"\d+\.\d+s", "", run.out + run.err)

    usual = session("[pytest]\n")
    assert session(BY_DEFAULT) == usual
    assert session("[pytest]\naddopts = --baseline=last\n") == usual


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("arguments", "ranks"),
    [(("--world-size=2",), 0), (("--launches=2",), 0), ((), 2)],
    ids=["gang", "launches", "torchrun"],
)
def test_sessions_of_several_processes_compare_with_the_last_one(
    project: Project, arguments: tuple[str, ...], ranks: int
) -> None:
    """Once, in the process that writes the run."""
    project.write(
        "test_it.py",
        """
        import pytest
        @pytest.mark.gpubench(ranks="any")
        def test_first(gpubench):
            gpubench(lambda: sum(range(2000)), samples=4)
        """,
    )

    first = project.run("--baseline=last", *arguments, ranks=ranks, env=WIDE)
    second = project.run("--baseline=last", *arguments, ranks=ranks, env=WIDE)

    assert (first.code, second.code) == (0, 0), second.out + second.err
    assert first.out.count("no earlier run: this is the first one") == 1
    assert second.out.count("compared with ") == 1
