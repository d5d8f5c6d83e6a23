"""``pytest --report=FILE``: the page of a session's run."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.results.reader import RunReader
from gpubench_plugin.results.run_directory import RunDirectory
from tests.support.page_reader import ReadPage

if TYPE_CHECKING:
    from tests.support.projects import Project

SUITE = """
import pytest

def test_sum(gpubench):
    gpubench(lambda: sum(range(2000)), samples=4)

def test_broken(gpubench):
    raise ValueError("no such <b>model</b>")

def test_left_out(gpubench):
    pytest.skip("not today")
"""


@pytest.mark.slow
def test_a_session_leaves_a_page_of_what_it_measured(project: Project) -> None:
    """Its figures are those of the summary, its rounds those of the journal."""
    project.write("test_it.py", SUITE)

    result = project.run("--report=report.html")

    assert result.code == 1
    assert f"report: {project.path / 'report.html'}" in result.out
    (directory,) = result.directories
    summary = json.loads((directory / "summary.json").read_text())
    (measured,) = (one for one in summary["benchmarks"] if one["outcome"] == "measured")
    page = ReadPage((project.path / "report.html").read_text(encoding="utf-8"))
    row = page.row("test_sum")
    assert row["number"] == measured["metrics"]["step_time_s"]["value"]
    assert list(page.history("test_sum")) == [directory.name]
    assert page.row("test_broken")["outcome"] == "failed"
    assert "no such <b>model</b>" in page.words
    assert "not today" in page.words
    samples = RunReader(RunDirectory(path=directory)).measurement(measured["id"]).samples
    assert samples is not None
    strip = next(chart for chart in page.charts if chart["noun"] == "round")
    (rounds,) = (s["values"] for s in strip["series"] if s["style"] == "dots")
    assert {*rounds} <= {*samples.rounds_s}
    assert (rounds[0], rounds[-1]) == (samples.rounds_s[0], samples.rounds_s[-1])
    assert len(rounds) == min(len(samples.rounds_s), 500)


@pytest.mark.slow
def test_launches_of_other_processes_are_on_the_page(project: Project) -> None:
    """Their process has the plugins of the session, without those that write."""
    project.write("test_it.py", SUITE)

    result = project.run("--report=report.html", "--launches=2", "-k", "sum")

    assert result.code == 0
    assert (
        ReadPage((project.path / "report.html").read_text(encoding="utf-8")).row("test_sum")[
            "outcome"
        ]
        == "measured"
    )


@pytest.mark.parametrize("text", [".", "", "missing/report.html", "pipe"])
def test_a_folder_is_refused_before_anything_is_measured(project: Project, text: str) -> None:
    """So is what is no file, which a page would replace; exit code 4 and one line."""
    project.write("test_it.py", SUITE)
    os.mkfifo(project.path / "pipe")

    result = project.run(f"--report={text}")

    assert result.code == 4
    assert f"--report={text}: " in result.err
    assert "not writable" in result.err
    assert not result.directories


def test_a_page_that_cannot_be_written_fails_a_session_that_keeps_its_results(
    project: Project,
) -> None:
    """One line says why."""
    project.write("test_it.py", SUITE)
    project.write(
        "conftest.py",
        "import os, pathlib\n\n"
        "def pytest_runtest_teardown(item):\n"
        "    pathlib.Path('out/report.html').mkdir(exist_ok=True)\n",
    )
    (project.path / "out").mkdir()

    result = project.run("--report=out/report.html", "-k", "sum")

    assert result.code == 1
    assert "no report: " in result.out
    assert "Traceback" not in result.out + result.err
    assert (result.directories[0] / "summary.json").is_file()


@pytest.mark.parametrize(("words", "code"), [([], 0), (["-k", "nothing"], 5)])
def test_a_session_without_a_benchmark_says_that_it_has_no_page(
    project: Project, words: list[str], code: int
) -> None:
    """An earlier page would be taken for its own."""
    project.write("test_it.py", "def test_plain():\n    pass\n")

    result = project.run("--report=report.html", *words)

    assert result.code == code
    assert "no report: no benchmark was selected" in result.out
    assert not (project.path / "report.html").exists()
