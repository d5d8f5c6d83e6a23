"""The controller in real sessions, whose ranks are played: it starts no process."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.core.errors import GangError
from gpubench_plugin.launchers import controller, report_payload
from gpubench_plugin.launchers.outcome import RankOutcome
from gpubench_plugin.launchers.report_transport import warning_to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from gpubench_plugin.core.records import Json, Measurement
    from tests.support.projects import Project

    EndedMaker = Callable[..., RankOutcome]
    ReportMaker = Callable[..., pytest.TestReport]

pytestmark = pytest.mark.slow

MODULE = """
import pytest

def note(text):
    with open("trace", "a") as trace: trace.write(text + "\\n")

@pytest.fixture(scope="session")
def shared():
    note("set up")
    yield
    note("tear down")

@pytest.mark.gpubench(ranks=2)
def test_a(gpubench, shared): note("a")

@pytest.mark.gpubench(ranks=2)
@pytest.mark.skipif(True, reason="known to the ranks alone")
def test_b(gpubench, shared): note("b")

def test_plain(shared): note("plain")
"""
BOTH = ("test_a[ws2]", "test_b[ws2]")
TORCHRUN = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "2",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "1",
}


class Stage:
    """Notes what is ordered, and tells how the ranks end it."""

    def __init__(self, path: Path, reported: ReportMaker, came_to_end: EndedMaker):
        self._path = path
        self._report, self._end = reported, came_to_end
        self.collected: Mapping[int, list[str]] = {}
        self.lost = ""
        self.starts: Callable[[int], object] = lambda _: None
        """Raises where the ranks cannot be started."""
        self.plays: Callable[[str], Mapping[str, Any] | None] = lambda _: None
        """Changes to the passing report of all ranks, or the `outcomes`; by "phase test"."""

    def note(self, text: str) -> None:
        with self._path.open("a") as trace:
            trace.write(f"{text}\n")

    @property
    def notes(self) -> list[str]:
        return self._path.read_text().splitlines()

    def team(self, size: int, **_: object) -> PlayedTeam:
        self.note(f"start {size}")
        self.starts(size)
        return PlayedTeam(self, size)

    def outcomes(self, phase: str, test: str, nodeid: str, size: int) -> list[RankOutcome]:
        changes = dict(self.plays(f"{phase} {test}") or {})
        if found := changes.pop("outcomes", None):
            return list(found)
        payload = changes.pop("payload", {})
        of_rank = {name: changes.pop(name) for name in ("exit", "exit_code") if name in changes}
        report = self._report(phase, nodeid=nodeid, **changes)
        setattr(report, report_payload.ATTRIBUTE, {**report_payload.read(report), **payload})
        return [self._end(rank, report, **of_rank) for rank in range(size)]


class PlayedTeam:
    """In the place of a team."""

    def __init__(self, stage: Stage, size: int):
        self.size, self.is_idle, self.collected = size, True, stage.collected
        self._stage = stage

    def lost_ranks(self) -> str:
        lost, self._stage.lost = self._stage.lost, ""
        return lost

    def is_healthy(self, timeout_s: float, *, renew: bool, damaged: bool) -> bool:
        return renew or not damaged

    def begin(self, *_: object) -> None:
        """Nothing is timed."""

    def run(self, phase: str, nodeid: str, next_nodeid: str | None) -> list[RankOutcome]:
        test = nodeid.partition("::test_")[2]
        following = (next_nodeid or "").partition("::test_")[2]
        self._stage.note(f"{phase} {test}" + (f" before {following}" if following else ""))
        outcomes = self._stage.outcomes(phase, test, nodeid, self.size)
        self.is_idle = all(outcome.state in {"ended", "absent"} for outcome in outcomes)
        return outcomes

    def abandon(self, outcomes: object, message: str) -> list[RankOutcome]:
        ranks = range(self.size)
        return [RankOutcome(rank=r, state="stuck", stack=f"rank {r} waits") for r in ranks]

    def give_up(self) -> None:
        self.is_idle = False

    def close(self) -> None:
        self._stage.note("close")

    def kill(self) -> None:
        self._stage.note("kill")


@pytest.fixture
def stage(
    monkeypatch: pytest.MonkeyPatch,
    project: Project,
    reported: ReportMaker,
    came_to_end: EndedMaker,
) -> Stage:
    """The ranks of the project's session, and the module of its tests."""
    made = Stage(project.path / "trace", reported, came_to_end)
    monkeypatch.setattr(controller, "Team", made.team)
    project.write("test_it.py", MODULE)
    return made


def phases(test: str, before: str = "") -> list[str]:
    """What is noted of a test all of whose phases are run."""
    suffix = f" before {before}" if before else ""
    return [f"{phase} {test}{suffix}" for phase in ("setup", "call", "teardown")]


HOOKS = """
from test_it import note
def pytest_runtest_setup(item): note(f"hook of {item.name}")
def pytest_runtest_call(item): note(f"hook of {item.name}")
def pytest_runtest_makereport(item): note(f"hook of {item.name}")
def pytest_runtest_logreport(report):
    if report.when == "call": note(f"reported {report.nodeid[12:]}")
"""


def test_ranks_alone_set_up_and_run_their_tests(stage: Stage, project: Project) -> None:
    """Fixtures, the conftest's hooks of phases, skip marks; a plain test is run and ended here."""
    project.write("conftest.py", HOOKS)
    ended = project.run("-p", "no:randomly")
    assert [n for n in stage.notes if n != "hook of test_plain"] == [
        *("set up", "plain", "reported test_plain", "tear down", "start 2"),
        *("setup a[ws2] before b[ws2]", "call a[ws2] before b[ws2]"),
        *("reported test_a[ws2]", "teardown a[ws2] before b[ws2]"),
        *("setup b[ws2]", "call b[ws2]", "reported test_b[ws2]", "teardown b[ws2]", "close"),
    ]
    assert stage.notes.count("hook of test_plain") == 5
    assert (ended.code, ended.outcomes) == (0, dict.fromkeys(BOTH, "not_measured"))


def test_each_size_or_isolated_test_has_a_team(stage: Stage, project: Project) -> None:
    """Fixtures live on for the next test of the same team only: what they hold, another needs."""
    project.write("test_it.py", MODULE.replace("ranks=2", 'ranks="any"'))
    project.run("--world-size=1,2", "-k", "not plain")
    sizes = [
        [f"start {n}", *phases(f"a[ws{n}]", f"b[ws{n}]"), *phases(f"b[ws{n}]"), "close"]
        for n in (1, 2)
    ]
    assert stage.notes == [*sizes[0], *sizes[1]]

    stage._path.unlink()
    project.run("--isolate", "--world-size=1", "-k", "not plain")
    assert stage.notes == [
        *("start 1", *phases("a[ws1]"), "close", "start 1", *phases("b[ws1]"), "close")
    ]


@pytest.mark.parametrize(
    ("at", "changes", "outcome", "left_out", "between"),
    [
        ("setup a[ws2]", {"outcome": "skipped", "longrepr": ("x", 1, "no")}, "skipped", 1, []),
        ("setup a[ws2]", {"outcome": "failed"}, "failed", 1, ["close", "start 2"]),
        ("call a[ws2]", {"outcome": "failed"}, "failed", 0, ["close", "start 2"]),
        ("teardown a[ws2]", {"outcome": "failed"}, "failed", 0, ["close", "start 2"]),
        ("call a[ws2]", {"wasxfail": "", "outcome": "skipped"}, "skipped", 0, ["close", "start 2"]),
        (
            "call a[ws2]",
            {"outcome": "failed", "kind": "crashed", "payload": {"context_lost": True}},
            "crashed",
            0,
            ["kill", "start 2"],
        ),
    ],
)
def test_what_the_ranks_report_is_the_test_s_and_the_next_runs(
    stage: Stage,
    project: Project,
    at: str,
    changes: Mapping[str, Any],
    outcome: str,
    left_out: int,
    between: list[str],
) -> None:
    """On new ranks where the old ones may be out of step or have lost their device."""
    stage.plays = lambda phase: changes if phase == at else None
    ended = project.run("-k", "not plain")
    first = phases("a[ws2]", "b[ws2]")
    assert stage.notes == [
        *("start 2", first[0], *first[1 + left_out :], *between),
        *(*phases("b[ws2]"), "close"),
    ]
    assert ended.outcomes == dict(zip(BOTH, (outcome, "not_measured"), strict=True))
    assert ended.code == (changes["outcome"] == "failed")


def test_error_while_the_controller_waits_fails_that_test(stage: Stage, project: Project) -> None:
    """As the alarm of a timeout raises it; the ranks' stacks are shown, and others go on."""

    def play(phase: str) -> None:
        if phase == "call a[ws2]":
            pytest.fail("Timeout >1.0s")

    stage.plays = play
    ended = project.run("-k", "not plain")
    assert stage.notes == [
        *("start 2", *phases("a[ws2]", "b[ws2]")[:2], "kill"),
        *("start 2", *phases("b[ws2]"), "close"),
    ]
    assert ended.outcomes == dict(zip(BOTH, ("failed", "not_measured"), strict=True))
    for text in ("Timeout >1.0s", "Stack of rank 0", "rank 1 waits", "1 failed, 1 passed"):
        assert text in ended.out


def test_ctrl_c_kills_the_ranks(stage: Stage, project: Project) -> None:
    """There is nothing to show, and nothing is waited for."""

    def play(phase: str) -> None:
        if phase == "call a[ws2]":
            raise KeyboardInterrupt

    stage.plays = play
    ended = project.run("-k", "not plain")
    assert stage.notes[-2:] == ["call a[ws2] before b[ws2]", "kill"]
    assert (ended.code, ended.summary["status"]) == (2, "interrupted")


def test_ranks_that_do_not_start_fail_the_tests_of_their_size(
    stage: Stage, project: Project
) -> None:
    """Once for all of them, unless ranks of that size have started before; others are started."""
    project.write("test_it.py", MODULE.replace("ranks=2", 'ranks="any"'))

    def start(size: int) -> None:
        if size == 2:
            raise GangError("rank 1 exited with code 1", "no licence")

    stage.starts = start
    ended = project.run("--world-size=1,2", "--isolate", "-k", "not plain")
    assert stage.notes.count("start 2") == 1
    assert stage.notes.count("start 1") == 2
    assert [b["outcome"] for b in ended.summary["benchmarks"]].count("crashed") == 2
    assert ended.out.count("no licence") >= 1


def test_ranks_that_were_killed_are_started_again_once(stage: Stage, project: Project) -> None:
    """As they start, or between two tests; a warning says so."""
    errors = [GangError("rank 1 was killed by SIGKILL", killed=True)]

    def start(size: int) -> None:
        if errors:
            raise errors.pop()

    def play(phase: str) -> None:
        if phase == "teardown a[ws2]":
            stage.lost = "rank 0 exited with code 3"

    stage.starts, stage.plays = start, play
    ended = project.run("-k", "not plain")
    restarted = "start 2"
    assert stage.notes == [
        *("start 2", restarted, *phases("a[ws2]", "b[ws2]"), "close"),
        *(restarted, *phases("b[ws2]"), "close"),
    ]
    assert "rank 1 was killed by SIGKILL; started a new gang of 2" in ended.out
    assert "between two benchmarks, rank 0 exited with code 3; started a new" in ended.out


@pytest.mark.parametrize("settings", [{}, {"batch_size": 8}])
def test_launches_are_one_test(
    stage: Stage,
    project: Project,
    measured: Callable[..., Measurement],
    settings: dict[str, int],
) -> None:
    """Each on new ranks; what differs between them is refused."""
    launches = iter((settings, {}))

    def play(phase: str) -> Json | None:
        if phase != "call a[ws2]":
            return None
        measurement = measured(id="test_it.py::test_a[ws2]", name="test_a[ws2]", world_size=2)
        return {"payload": {"measurement": replace(measurement, settings=next(launches))}}

    stage.plays = play
    ended = project.run("--launches=2", "-k", "test_a", "--benchmark-json=of_benchmark.json")
    assert stage.notes == [*("start 2", *phases("a[ws2]"), "close") * 2]
    (benchmark,) = ended.summary["benchmarks"]
    if settings:
        assert (benchmark["outcome"], ended.code) == ("failed", 1)
        assert "batch_size=8, None" in benchmark["reason"]
    else:
        assert (benchmark["launches"], ended.code) == (2, 0)
        assert '"test_a[ws2]"' in (project.path / "of_benchmark.json").read_text()


def test_warnings_and_the_wish_to_end_come_from_ranks(
    stage: Stage, project: Project, came_to_end: EndedMaker
) -> None:
    """What all ranks warn of is told once; pytest.exit on one ends the session with its code."""

    def warned(text: str) -> Json:
        message = warnings.WarningMessage(UserWarning(text), UserWarning, "test_it.py", 4)
        return warning_to_json(message, "runtest", "test_it.py::test_a", ("test_it.py", 4, "f"))

    def play(phase: str) -> Json | None:
        if phase == "call a[ws2]":
            both, one = warned("old"), warned("odd")
            endings = came_to_end(0, warnings=(both,)), came_to_end(1, warnings=(both, one))
            return {"outcomes": endings}
        return {"exit": "enough", "exit_code": 1} if phase == "setup b[ws2]" else None

    stage.plays = play
    ended = project.run("-k", "not plain")
    assert ended.out.count("UserWarning: [all ranks] old") == 1
    assert ended.out.count("UserWarning: [rank 1] odd") == 1
    assert ended.code == 1
    assert "rank 0: enough" in ended.out
    assert stage.notes[-2:] == ["setup b[ws2]", "kill"]


def test_debugger_is_refused(stage: Stage, project: Project) -> None:
    """Ranks have no terminal."""
    ended = project.run("--pdb")
    assert (ended.code, stage._path.exists()) == (4, False)
    assert "--pdb" in ended.err


def test_ranks_of_torchrun_run_all_tests(stage: Stage, project: Project) -> None:
    """In the order of the controller; what it has not collected is not run, and warned of."""
    stage.collected = {0: [], 1: ["test_it.py::test_only_here"]}
    stage.plays = lambda phase: {"outcome": "failed"} if phase == "call plain" else None
    ended = project.run("-p", "no:randomly", env=TORCHRUN)
    assert stage.notes == [
        *("start 2", *phases("a[ws2]", "b[ws2]"), *phases("b[ws2]", "plain")),
        *(*phases("plain"), "close"),
    ]
    assert (ended.code, ended.outcomes) == (1, dict.fromkeys(BOTH, "not_measured"))
    assert "only rank 1 collected test_it.py::test_only_here" in ended.out


def test_loss_of_ranks_that_cannot_be_replaced_ends_the_session(
    stage: Stage, project: Project, came_to_end: EndedMaker
) -> None:
    """Of torchrun's; their launcher would end all processes before the results are written."""
    died = RankOutcome(rank=1, state="died", details="was killed by SIGKILL")
    stage.plays = lambda phase: (
        {"outcomes": [came_to_end(0), died]} if phase[:4] == "call" else None
    )
    ended = project.run("-p", "no:randomly", env=TORCHRUN)
    assert stage.notes == ["start 2", *phases("a[ws2]", "b[ws2]")[:2], "kill"]
    assert (ended.code, ended.outcomes["test_a[ws2]"]) == (1, "crashed")
    assert "test_a[ws2]: rank 1 was killed by SIGKILL; ranks started by torchrun" in ended.out


def test_ranks_of_torchrun_that_do_not_join_are_a_usage_error(
    stage: Stage, project: Project
) -> None:
    """Before any test runs."""

    def start(size: int) -> None:
        raise GangError("rank 1 of 2 did not join")

    stage.starts = start
    ended = project.run(env=TORCHRUN)
    assert ended.code == 4
    assert "rank 1 of 2 did not join: were benchmarks collected there?" in ended.err
