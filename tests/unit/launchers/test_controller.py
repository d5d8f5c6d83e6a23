"""The controller in real sessions, whose ranks are played: it starts no process."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from torch import distributed as dist

from gpubench_plugin.core.errors import GangError
from gpubench_plugin.launchers import controller
from gpubench_plugin.launchers.outcome import RankOutcome
from gpubench_plugin.results import report_payload

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
A_AND_B = ("-k", "not plain", "-p", "no:randomly")
TORCHRUN = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "2",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "1",
}


class Stage:
    """Ranks in the place of a team: notes what is ordered, and tells how they end it."""

    def __init__(self, path: Path, reported: ReportMaker, came_to_end: EndedMaker):
        self.trace = path
        self._report, self._end = reported, came_to_end
        self.errors: dict[int, list[GangError]] = {}
        """Why ranks of a size cannot be started, each once, the last first."""
        self.collected: Mapping[int, list[str]] = {}
        self.lost, self.is_sound = "", True
        self.plays: Callable[[str], Mapping[str, Any] | list[RankOutcome] | None] = lambda _: None
        """How all ranks end "phase test": with changes to a passing report, or the outcomes."""

    def note(self, text: str) -> None:
        with self.trace.open("a") as trace:
            trace.write(f"{text}\n")

    @property
    def notes(self) -> list[str]:
        return self.trace.read_text().splitlines()

    def start(self, size: int, **_: object) -> Stage:
        self.note(f"start {size}")
        if errors := self.errors.get(size):
            raise errors.pop()
        self.size, self.is_idle, self.runs_test = size, True, False
        return self

    def lost_ranks(self) -> str:
        lost, self.lost = self.lost, ""
        return lost

    def is_healthy(self, timeout_s: float, *, damaged: bool) -> bool:
        return self.is_sound

    def begin(self, *_: object) -> None:
        """Nothing is timed."""

    def run(self, phase: str, nodeid: str, next_nodeid: str | None) -> list[RankOutcome]:
        test, following = (n.partition("::test_")[2] for n in (nodeid, next_nodeid or ""))
        self.note(f"{phase} {test}" + (f" before {following}" if following else ""))
        self.runs_test = phase != "teardown"
        played = self.plays(f"{phase} {test}") or {}
        if isinstance(played, list):
            self.is_idle = all(outcome.state == "ended" for outcome in played)
            return played
        changes = {"payload": {}, **played}
        payload = changes.pop("payload")
        report = self._report(phase, nodeid=nodeid, **changes)
        setattr(report, report_payload.ATTRIBUTE, {**report_payload.read(report), **payload})
        return [self._end(rank, report) for rank in range(self.size)]

    def abandon(self, outcomes: object, message: str) -> list[RankOutcome]:
        ranks = range(self.size)
        return [RankOutcome(rank=r, state="stuck", stack=f"rank {r} waits") for r in ranks]

    def give_up(self) -> None:
        self.is_idle = False

    def close(self) -> None:
        self.note("close")

    def kill(self) -> None:
        self.note("kill")


@pytest.fixture
def stage(
    monkeypatch: pytest.MonkeyPatch,
    project: Project,
    reported: ReportMaker,
    came_to_end: EndedMaker,
) -> Stage:
    """The ranks of the project's session, and the module of its tests."""
    made = Stage(project.path / "trace", reported, came_to_end)
    monkeypatch.setattr(dist, "is_initialized", lambda: False)  # whatever other tests have left
    monkeypatch.setattr(controller, "Team", made.start)
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
FIRST, SECOND = phases("a[ranks2]", "b[ranks2]"), phases("b[ranks2]")


def outcomes(first: str, second: str = "not_measured") -> dict[str, str]:
    return {"test_a[ranks2]": first, "test_b[ranks2]": second}


def test_ranks_alone_set_up_and_run_their_tests(stage: Stage, project: Project) -> None:
    """Fixtures, the conftest's hooks of phases, skip marks; a plain test is run and ended here."""
    project.write("conftest.py", HOOKS)
    ended = project.run("-p", "no:randomly")
    assert [n for n in stage.notes if n != "hook of test_plain"] == [
        *("set up", "plain", "reported test_plain", "tear down", "start 2"),
        *(*FIRST[:2], "reported test_a[ranks2]", FIRST[2]),
        *(*SECOND[:2], "reported test_b[ranks2]", SECOND[2], "close"),
    ]
    assert stage.notes.count("hook of test_plain") == 5
    assert (ended.code, ended.outcomes) == (0, outcomes("not_measured"))


def test_each_size_or_isolated_test_has_a_team(stage: Stage, project: Project) -> None:
    """Fixtures live on for the next test of the same team only: what they hold, another needs."""
    project.write("test_it.py", MODULE.replace("ranks=2", 'ranks="any"'))
    project.run("--world-size=1,2", *A_AND_B)
    one = ["start 1", *phases("a", "b"), *phases("b"), "close"]
    assert stage.notes == [*one, "start 2", *FIRST, *SECOND, "close"]

    stage.trace.unlink()
    project.run("--isolate", "--world-size=2", *A_AND_B)
    assert stage.notes == ["start 2", *phases("a[ranks2]"), "close", "start 2", *SECOND, "close"]


@pytest.mark.parametrize(
    ("at", "changes", "outcome", "between"),
    [
        ("setup", {"outcome": "skipped", "longrepr": ("x", 1, "no")}, "skipped", ""),
        ("setup", {"outcome": "failed"}, "failed", "close"),
        ("call", {"outcome": "failed"}, "failed", "close"),
        ("teardown", {"outcome": "failed"}, "failed", "close"),
        ("call", {"wasxfail": "", "outcome": "skipped"}, "skipped", "close"),
        (
            "call",
            {"outcome": "failed", "kind": "crashed", "payload": {"context_lost": True}},
            "crashed",
            "kill",
        ),
    ],
)
def test_what_the_ranks_report_is_the_test_s_and_the_next_runs(
    stage: Stage,
    project: Project,
    at: str,
    changes: Mapping[str, Any],
    outcome: str,
    between: str,
) -> None:
    """On new ranks where the old ones may be out of step or have lost their device."""
    stage.plays = lambda phase: changes if phase == f"{at} a[ranks2]" else None
    ended = project.run(*A_AND_B)
    first = [FIRST[0], FIRST[2]] if at == "setup" else FIRST
    restart = [between, "start 2"] if between else []
    assert stage.notes == ["start 2", *first, *restart, *SECOND, "close"]
    assert ended.outcomes == outcomes(outcome)
    assert ended.code == (changes["outcome"] == "failed")


@pytest.mark.parametrize("error", [pytest.fail.Exception("Timeout >1.0s"), KeyboardInterrupt()])
def test_error_while_the_controller_waits_fails_that_test(
    stage: Stage, project: Project, error: BaseException
) -> None:
    """As a timeout's alarm raises it: the ranks' stacks are shown; only Ctrl-C ends the session."""

    def play(phase: str) -> None:
        if phase == "call a[ranks2]":
            raise error

    stage.plays = play
    ended = project.run(*A_AND_B)
    if isinstance(error, KeyboardInterrupt):
        assert stage.notes == ["start 2", *FIRST[:2], "kill"]
        assert (ended.code, ended.summary["status"]) == (2, "interrupted")
        return
    assert stage.notes == ["start 2", *FIRST[:2], "kill", "start 2", *SECOND, "close"]
    assert ended.outcomes == outcomes("failed")
    for text in ("Timeout >1.0s", "Stack of rank 0", "rank 1 waits", "1 failed, 1 passed"):
        assert text in ended.out


def test_ranks_that_do_not_start_fail_the_tests_of_their_size(
    stage: Stage, project: Project
) -> None:
    """They are not tried again for each; those of another size are started."""
    project.write("test_it.py", MODULE.replace("ranks=2", 'ranks="any"'))
    stage.errors = {2: [GangError("rank 1 exited with code 1", "no licence")]}
    ended = project.run("--world-size=1,2", "--isolate", *A_AND_B)
    assert [n for n in stage.notes if n.startswith("start")] == ["start 1", "start 1", "start 2"]
    found = ended.outcomes
    assert {name: found[name] for name in outcomes("")} == outcomes("crashed", "crashed")
    assert ended.out.count("no licence") == 1


@pytest.mark.parametrize(
    ("lost", "told"),
    [
        ("rank 0 exited with code 3", "between two benchmarks, rank 0 exited with code 3"),
        ("", "test_a[ranks2] left the process group in an unusable state"),
    ],
)
def test_ranks_that_are_lost_or_useless_are_started_again(
    stage: Stage, project: Project, lost: str, told: str
) -> None:
    """Once as they start, and between two tests; a warning says so."""
    stage.errors = {2: [GangError("rank 1 was killed by SIGKILL", killed=True)]}

    def play(phase: str) -> None:
        if phase == "teardown a[ranks2]":
            stage.lost, stage.is_sound = lost, False

    stage.plays = play
    ended = project.run(*A_AND_B)
    assert stage.notes == ["start 2", "start 2", *FIRST, "close", "start 2", *SECOND, "close"]
    assert "rank 1 was killed by SIGKILL; started a new gang of 2" in ended.out
    assert f"{told}; started a new gang of 2" in ended.out


def test_launch_that_fails_as_it_ends_is_the_last(
    stage: Stage, measured: Callable[..., Measurement], project: Project
) -> None:
    """Its ranks, which have torn the test down, are ordered nothing more of it."""

    def play(phase: str) -> Json | None:
        if phase == "teardown a[ranks2]":
            return {"outcome": "failed", "longrepr": "not put away"}
        measurement = measured(id="test_it.py::test_a[ranks2]", name="test_a[ranks2]", world_size=2)
        return {"payload": {"measurement": measurement}} if phase == "call a[ranks2]" else None

    stage.plays = play
    ended = project.run("--launches=2", "-k", "test_a")
    assert stage.notes == ["start 2", *phases("a[ranks2]"), "close"]
    assert ended.outcomes == {"test_a[ranks2]": "failed"}


@pytest.mark.parametrize("settings", [{}, {"batch_size": 8}])
def test_launches_are_one_test(
    stage: Stage,
    project: Project,
    measured: Callable[..., Measurement],
    settings: dict[str, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each on new ranks; what differs between them is refused."""
    launches = iter((settings, {}))

    def play(phase: str) -> Json | None:
        if phase != "call a[ranks2]":
            return None
        measurement = measured(id="test_it.py::test_a[ranks2]", name="test_a[ranks2]", world_size=2)
        return {"payload": {"measurement": replace(measurement, settings=next(launches))}}

    stage.plays = play
    stored: list[Any] = []
    if settings:
        store = "store_foreign_result"
        monkeypatch.setattr(controller.pytest_benchmark, store, lambda *given: stored.append(given))
    saved = [] if settings else ["--benchmark-json=of_benchmark.json"]
    ended = project.run("--launches=2", "-k", "test_a", *saved)
    assert stage.notes == ["start 2", *phases("a[ranks2]"), "close"] * 2
    (benchmark,) = ended.summary["benchmarks"]
    if settings:
        assert (benchmark["outcome"], ended.code) == ("failed", 1)
        assert "batch_size=8, None" in benchmark["reason"]
        assert stored == []
    else:
        assert (benchmark["launches"], ended.code) == (2, 0)
        assert '"test_a[ranks2]"' in (project.path / "of_benchmark.json").read_text()


def test_warnings_and_the_wish_to_end_come_from_ranks(
    stage: Stage, project: Project, came_to_end: EndedMaker
) -> None:
    """What all ranks warn of is told once; pytest.exit on one ends the session with its code."""
    warned = {"category": "UserWarning", "filename": "test_it.py", "lineno": 4, "when": "runtest"}
    both, one = ({**warned, "nodeid": "", "location": None, "text": t} for t in ("old", "odd"))

    def play(phase: str) -> list[RankOutcome] | None:
        if phase == "call a[ranks2]":
            return [came_to_end(0, warnings=(both,)), came_to_end(1, warnings=(both, one))]
        exits = came_to_end(0, exit="enough", exit_code=1)
        return [exits, came_to_end(1)] if phase == "setup b[ranks2]" else None

    stage.plays = play
    ended = project.run(*A_AND_B)
    assert ended.out.count("UserWarning: [all ranks] old") == 1
    assert ended.out.count("UserWarning: [rank 1] odd") == 1
    assert "rank 0: enough" in ended.out
    assert (stage.notes[-2:], ended.code) == (["setup b[ranks2]", "kill"], 1)


def test_ranks_of_torchrun_run_all_tests(stage: Stage, project: Project) -> None:
    """In the order of the controller; what it has not collected is not run, and warned of."""
    stage.collected = {0: [], 1: ["test_it.py::test_only_here"]}
    stage.plays = lambda phase: {"outcome": "failed"} if phase == "call plain" else None
    ended = project.run("-p", "no:randomly", env=TORCHRUN)
    second, plain = phases("b[ranks2]", "plain"), phases("plain")
    assert stage.notes == ["start 2", *FIRST, *second, *plain, "close"]
    assert (ended.code, ended.outcomes) == (1, outcomes("not_measured"))
    assert "only rank 1 collected test_it.py::test_only_here" in ended.out


def test_loss_of_ranks_that_cannot_be_replaced_ends_the_session(
    stage: Stage, project: Project, came_to_end: EndedMaker
) -> None:
    """Of torchrun's; their launcher would end all processes before the results are written."""
    died = [came_to_end(0), RankOutcome(rank=1, state="died", details="was killed by SIGKILL")]
    stage.plays = lambda phase: died if phase == "call a[ranks2]" else None
    ended = project.run("-p", "no:randomly", env=TORCHRUN)
    assert stage.notes == ["start 2", *FIRST[:2], "kill"]
    assert (ended.code, ended.outcomes["test_a[ranks2]"]) == (1, "crashed")
    assert "test_a[ranks2]: rank 1 was killed by SIGKILL; these ranks cannot" in ended.out

    stage.errors = {2: [GangError("rank 1 of 2 did not join")]}
    ended = project.run(env=TORCHRUN)
    assert ended.code == 4
    assert "rank 1 of 2 did not join" in ended.err
