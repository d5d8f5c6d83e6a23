"""A real rank, ordered by hand."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.launchers.deadlines import Timeouts
from gpubench_plugin.launchers.processes import RankCommand
from gpubench_plugin.launchers.team import Team
from gpubench_plugin.launchers.ways.gang import Gang

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gpubench_plugin.launchers.merged_reports import Phase
    from gpubench_plugin.launchers.outcome import RankOutcome
    from tests.support.projects import Project

pytestmark = pytest.mark.slow

LONG = Timeouts(timeout_s=60.0, failure_grace_s=60.0, divergence_s=60.0)
CONFTEST = """
import pytest
def note(text):
    with open("trace", "a") as trace: trace.write(text + "\\n")
@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol():
    note("around")
    return (yield)
def pytest_runtest_logstart(): note("start")
def pytest_runtest_setup(): note("hook")
def pytest_runtest_teardown(): note("hook")
"""
TESTS = """
import warnings
import pytest
from conftest import note
@pytest.fixture(scope="module")
def shared():
    note("set up")
    yield
    note("tear down")
def test_a(shared):
    note("call")
    warnings.warn("odd")
def test_b(shared, benchmark): benchmark(sum, [1])
def test_c(shared): pytest.exit("enough", 9)
def test_d(request): request.session.shouldstop = "a hook says so"
"""


class AllOnRanks(Gang):
    """One whose ranks run all tests."""

    runs_all = True


@pytest.fixture
def team(project: Project, pytestconfig: pytest.Config, tmp_path: Path) -> Iterator[Team]:
    """One rank of a project with an error in another file."""
    for name, text in (("conftest.py", CONFTEST), ("test_it.py", TESTS), ("test_bad.py", "1 +")):
        project.write(name, text)
    command = [sys.executable, "-m", "pytest", "-x", "--benchmark-max-time=0.01"]
    team = Team(
        1,
        config=pytestconfig,
        launcher=AllOnRanks(),
        call=RankCommand(command=command, folder=project.path, logs=tmp_path / "ranks"),
        welcome={"run_directory": str(tmp_path), "options": {}},
        timeouts=LONG,
    )
    yield team
    team.kill()


def test_rank_runs_phases_and_their_hooks_alone(team: Team, project: Project) -> None:
    """Nothing that surrounds a test: that is the controller's, which may order it once more."""

    def run(test: str, *phases: Phase, before: str = "") -> list[RankOutcome]:
        team.begin(LONG, None, bool)
        ids = f"test_it.py::{test}", f"test_it.py::{before}"
        return [team.run(phase, *ids)[0] for phase in phases]

    assert team.collected == {0: []}
    for _ in range(2):
        outcomes = run("test_a", "setup", "call", "teardown", before="test_b")
        phases = [report.when for outcome in outcomes for report in outcome.reports]
        assert phases == ["setup", "call", "teardown"]
        assert outcomes[1].passed
        assert [w["text"] for o in outcomes for w in o.warnings] == ["odd"]
    trace = (project.path / "trace").read_text().splitlines()
    assert trace == ["hook", "set up", "call", "hook", "hook", "call", "hook"]

    (absent,) = run("test_x", "setup")
    assert absent.state == "absent"
    assert "SyntaxError" in absent.details

    outcomes = run("test_b", "setup", "call", "teardown", before="test_c")
    assert [[result["name"] for result in o.results] for o in outcomes] == [[], ["test_b"], []]
    _, ended, _ = run("test_c", "setup", "call", "teardown", before="test_d")
    assert (ended.exit, ended.exit_code) == ("enough", 9)

    outcomes = run("test_d", "setup", "call", "teardown")
    assert [outcome.stops for outcome in outcomes][1:] == [{"shouldstop": "a hook says so"}] * 2

    rank = team._processes[0]
    assert rank.log is not None
    assert team.close() == "", "whatever was not collected, or failed"
    assert rank.exit_text() == "exited with code 0"
    assert "test session starts" not in rank.log.read_text()
    assert (project.path / "trace").read_text().endswith("tear down\n")
