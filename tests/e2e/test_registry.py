"""The registry beside a session: it learns of every run, and is never in its way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubench_plugin.results.registry.registry import Registry

if TYPE_CHECKING:
    from tests.support.projects import Project

SUITE = """
import os

def test_it(gpubench, tmp_path):
    os.chdir(tmp_path)
    gpubench(lambda: sum(range(100)))
"""
DEFAULT = {"GPUBENCH_REGISTRY": ""}


def test_a_run_waits_while_the_database_is_down(project: Project) -> None:
    """It is measured and recorded, the user is told without the password, and nothing is lost."""
    project.write("test_it.py", SUITE)
    url = "sqlite:///down/registry.sqlite"
    project.write("down", "a file where the folder of the database should be")
    first = project.run(f"--registry={url}")
    assert first.code == 0, first.out
    assert "whatever opens the registry next stores the run" in first.out

    (project.path / "down").unlink()
    (project.path / "down").mkdir()
    second = project.run(f"--registry={url}", "--tag=second")
    assert second.code == 0, second.out
    assert "stores the run" not in second.out
    with Registry.open(f"sqlite:///{project.path}/down/registry.sqlite", second.results) as found:
        assert len(found.runs()) == 2  # the one that waited, and this one


def test_sessions_are_indexed_beside_their_runs(project: Project) -> None:
    """By default the registry is a file in the folder of the runs, whatever a benchmark changes."""
    project.write("test_it.py", SUITE)
    run = project.run(env=DEFAULT)
    assert run.code == 0, run.out
    with Registry.open("", run.results) as registry:
        (row,) = registry.runs()
    assert (row.run_id, row.state) == (run.results.glob("*/*/").__next__().name, "complete")


def test_what_is_no_registry_is_refused_before_anything_is_measured(project: Project) -> None:
    """The message names what is allowed, and hides the password; nothing is written."""
    project.write("test_it.py", SUITE)
    run = project.run("--registry=mysql://me:hidden-word@host/db")
    assert run.code == 4
    assert "allowed: sqlite:///" in run.err + run.out
    assert "hidden-word" not in run.err + run.out
    assert not run.results.exists()
