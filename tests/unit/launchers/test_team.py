"""Teams of tiny ranks that speak the controller's language and import nothing heavy."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import textwrap
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from gpubench_plugin.config.rounds_file import FixedRounds
from gpubench_plugin.core.errors import GangError
from gpubench_plugin.launchers.deadlines import Timeouts
from gpubench_plugin.launchers.processes import RankCommand
from gpubench_plugin.launchers.team import Team
from gpubench_plugin.launchers.ways.gang import Gang
from gpubench_plugin.system.timeout_clock import TimeoutClock
from tests.support.processes import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from selectors import SelectorKey

    from gpubench_plugin.launchers.link import Invitation
    from gpubench_plugin.launchers.merged_reports import Phase
    from gpubench_plugin.launchers.outcome import RankOutcome
    from gpubench_plugin.launchers.processes import RankProcess

    Start = Callable[..., Team]

pytestmark = pytest.mark.slow


LONG = Timeouts(timeout_s=60.0, failure_grace_s=60.0, divergence_s=60.0)

RANK = r"""
import os, signal, sys, time
from gpubench_plugin.system.signals import die_with_parent
from gpubench_plugin.system import stacks
from gpubench_plugin.launchers.link import INVITATION, Invitation, connect
from gpubench_plugin.launchers.processes import this_process

die_with_parent()
rank = int(os.environ["RANK"])
invitation = Invitation.from_text(os.environ[INVITATION])
stacks.enable_dumps(invitation.folder, rank)

def reach(**hello):
    return connect(invitation, {"rank": rank, **this_process(), **hello})

def join(link):
    link.send({"collected": ["first", f"only-{rank}"]})
    assert link.receive() == {"welcome": {"run_directory": "here"}, "order": 1, "number": 0}

def serve(link):
    while "finish" not in (order := link.receive()):
        if "stack" in order:
            link.send({"stack": "in a thread that listens"})
            continue
        answer = {"order": order["order"], "number": order["number"]}
        if "health_timeout_s" in order:
            if test == "exits" and rank == 1: os._exit(1)
            link.send({"healthy": test == "first" or order["damaged"] or rank == 0, **answer})
            continue
        test = order["run"]
        log(order)
        if test == "hangs" and rank == 1: continue
        act(test, order["phase"])
        answer["order"] += test == "forgets" and rank == 1
        if test == "lacks" and rank == 1: answer["absent"] = "SyntaxError"
        link.send({"reports": [], "warnings": [], **answer})
        open(f"answered-{rank}", "w").close()

def log(order):
    sent = f"sent-{order['order']}"
    if rank == 0:
        said = [order["run"], order["phase"], order["next"], order.get("rounds")]
        for number in (order["number"], 0):
            link.send({"event": said, "number": number})
        open(sent, "w").close()
    while not os.path.exists(sent): time.sleep(0.01)

def act(test, phase):
    if test == "parts" and rank == 1: time.sleep(600)
    if test == "dawdles": time.sleep(0.7)
    if test == "leaves" and rank == 1: os._exit(5)
    if test == "closes" and rank == 1: link._socket.close(); time.sleep(600)
    if test == "babbles" and rank == 1: link._socket.sendall(b"what?\n"); time.sleep(600)
"""
SERVES = "link = reach(); join(link); serve(link)"


class HalfGang(Gang):
    """Starts rank one as if somebody else had."""

    others: ClassVar[list[RankProcess]] = []

    def start(
        self, size: int, invitation: Invitation, call: RankCommand
    ) -> Iterator[tuple[int, RankProcess]]:
        (first, (_, other)) = super().start(size, invitation, call)
        self.others.append(other)
        yield first


class ExhaustedGang(Gang):
    """Cannot start rank one."""

    others: ClassVar[list[RankProcess]] = []

    def start(
        self, size: int, invitation: Invitation, call: RankCommand
    ) -> Iterator[tuple[int, RankProcess]]:
        ((rank, process),) = super().start(1, invitation, call)
        self.others.append(process)
        yield rank, process
        raise BlockingIOError("no more processes")


@pytest.fixture
def start(tmp_path: Path, pytestconfig: pytest.Config) -> Iterator[Start]:
    """Starts teams of two whose ranks run a piece of Python; they are killed at the end."""
    teams: list[Team] = []

    def of(source: str = SERVES, timeouts: Timeouts = LONG, kind: type[Gang] = Gang) -> Team:
        command = [sys.executable, "-c", RANK + textwrap.dedent(source)]
        call = RankCommand(command=command, folder=tmp_path, logs=tmp_path / "ranks")
        given: Any = {"launcher": kind(), "call": call, "timeouts": timeouts}
        teams.append(Team(2, config=pytestconfig, welcome={"run_directory": "here"}, **given))
        return teams[-1]

    yield of
    for team in teams:
        team.kill()
    while HalfGang.others:
        HalfGang.others.pop().kill()


def run(team: Team, test: str) -> list[RankOutcome]:
    """How the ranks end the setup of that test."""
    team.begin(LONG, None, bool)
    return team.run("setup", test)


def open_files() -> list[str]:
    return os.listdir("/proc/self/fd")  # noqa: PTH208 # names are wanted


def test_team_runs_phase_after_phase_and_leaves_nothing(start: Start) -> None:
    """The outcomes come in the order of ranks; after its end no folder and no open file is left."""
    before = open_files()
    team = start()
    assert team.collected == {0: ["first", "only-0"], 1: ["first", "only-1"]}

    phases: tuple[Phase, ...] = ("setup", "call", "teardown")
    rounds = FixedRounds(rounds=3, durations_per_round=1, calls_per_duration=2)
    for test, fixed in (("first", rounds), ("second", None)):
        events: list[object] = []
        team.begin(LONG, fixed, events.append)
        for phase in phases:
            outcomes = team.run(phase, test, "next")
            assert [(o.rank, o.state) for o in outcomes] == [(0, "ended"), (1, "ended")]
        told = [[test, phase, "next", fixed and asdict(fixed)] for phase in phases]
        assert events == told, "those of the running test, and no answers"
        assert team.lost_ranks() == ""

    folder = team._scratch.path
    assert oct(folder.stat().st_mode)[-3:] == "700"
    team.close()
    team.close()
    assert not folder.exists()
    assert not team.is_idle
    assert open_files() == before


@pytest.mark.parametrize(
    ("end", "faults"), [("", ""), ("time.sleep(60)", "rank 1 did not exit within 0.5 s")]
)
def test_rank_on_another_host_has_left_once_it_disconnects(
    start: Start, monkeypatch: pytest.MonkeyPatch, end: str, faults: str
) -> None:
    """How its process ended is not known there."""
    monkeypatch.setattr("gpubench_plugin.launchers.team._LEAVE_TIMEOUT_S", 0.5 if end else 60.0)
    hello = 'namespace="far", host="afar"'
    source = f"link = reach({hello}); join(link); serve(link)"
    team = start(f"{source}\nif rank == 1: {end or 'pass'}", kind=HalfGang)
    run(team, "first")
    team.run("teardown", "first")
    assert team.close() == faults


def test_rank_without_the_test_runs_its_setup_only(start: Start) -> None:
    """It says why; the others go on, and it has not left the team."""
    team = start()
    zero, one = run(team, "lacks")
    assert (zero.state, one.state, one.details) == ("ended", "absent", "SyntaxError")
    assert [o.rank for o in team.run("call", "lacks")] == [0]
    assert [o.rank for o in team.run("teardown", "lacks")] == [0]
    assert [o.state for o in run(team, "first")] == ["ended", "ended"]


@pytest.mark.parametrize(
    ("rank", "test", "told", "stack"),
    [
        ("a child", "parts", "timed out 1 s after another rank passed", "in act"),
        ("a child", "leaves", "exited with code 5", ""),
        ("a child", "closes", "disconnected from the controller", "in act"),
        ("a child", "babbles", "disconnected from the controller", "in act"),
        ("a child", "forgets", "answered out of order", ""),
        ("here", "leaves", "exited with code 5", ""),
        ("here", "parts", "timed out 1 s after another rank passed", "in act"),
        ("far", "leaves", "disconnected from the controller (on afar)", ""),
        ("far", "hangs", "timed out 1 s after another rank passed", "in a thread that listens"),
    ],
)
def test_rank_that_does_not_end_a_phase_ends_the_team(
    start: Start, rank: str, test: str, told: str, stack: str
) -> None:
    """It is told what became of it, and where it is if it still runs, whoever has started it.

    What rank zero logged before is passed on.
    """
    kind = Gang if rank == "a child" else HalfGang
    hello = 'namespace="far", host="afar"' if rank == "far" else ""
    team = start(f"link = reach({hello}); join(link); serve(link)", kind=kind)

    # Coverage writes its data within os._exit: 0.11 s on an idle machine, up to 0.6 s beside eight
    # busy processes (2 ms without coverage).
    divergence_s, events = 1.0 if "1 s" in told else 10.0, list[object]()
    team.begin(replace(LONG, divergence_s=divergence_s), None, events.append)
    zero, one = team.run("setup", test)

    assert (zero.rank, events) == (0, [[test, "setup", None, None]])
    state = "died" if told.startswith(("exited", "disconnected")) else "stuck"
    assert (one.state, one.details[: len(told)]) == (state, told)
    assert stack in one.stack
    assert bool(stack) == bool(one.stack) or test == "forgets"
    assert not team.is_idle


def test_what_rank_zero_logged_is_passed_on_before_another_ends_the_team(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are there when the controller looks, the other rank's answer first."""
    team = start()
    select = team._selector.select

    def backwards(timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        wait_until((tmp_path / "answered-1").exists)
        return sorted(select(timeout), key=lambda ready: -ready[0].data)

    monkeypatch.setattr(team._selector, "select", backwards)
    events: list[object] = []
    team.begin(LONG, None, events.append)
    assert [o.state for o in team.run("setup", "forgets")] == ["stuck", "stuck"]
    assert events == [["forgets", "setup", None, None]]


def test_timeout_is_one_for_all_phases_of_a_test(start: Start) -> None:
    """Phases of 0.7 s each end in time, all three together do not."""
    team = start()
    team.begin(replace(LONG, timeout_s=1.5), None, bool)
    phases: Iterator[Phase] = iter(("setup", "call", "teardown"))
    while team.is_idle:
        outcomes = team.run(next(phases), "dawdles")
    assert outcomes[0].details == "timed out after 1.5 s (measure.timeout_s)"
    assert 0.05 < outcomes[0].duration_s < 0.7, "of the last phase alone"


def test_answers_that_came_while_the_controller_was_stopped_count(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the limit, which it finds expired as it goes on."""

    class Late(TimeoutClock):
        def remaining(self, deadline: float) -> float:
            wait_until(lambda: len(list(tmp_path.glob("answered-*"))) == 2)
            return 0.0

    team = start()
    monkeypatch.setattr("gpubench_plugin.launchers.team.TimeoutClock", Late)
    assert [outcome.state for outcome in run(team, "first")] == ["ended", "ended"]


@pytest.mark.parametrize(
    ("after", "damaged", "healthy", "whole"),
    [
        ("first", False, True, True),
        ("disorder", False, False, True),
        ("disorder", True, True, True),
        ("exits", False, False, False),
    ],
)
def test_team_is_healthy_if_every_rank_says_so(
    start: Start, after: str, damaged: bool, healthy: bool, whole: bool
) -> None:
    """They hear of damage; one that cannot answer any more has ended the team."""
    team = start()
    run(team, after)
    assert team.is_healthy(60.0, damaged=damaged) == healthy
    assert team.is_idle == whole


@pytest.mark.parametrize("before", ["", "os.fork() or time.sleep(600)"])
def test_rank_that_ends_between_two_orders_is_lost(start: Start, before: str) -> None:
    """It is noticed before the next order, also where a child holds its connection open."""
    team = start(f"link = reach(); join(link)\n{before}\nserve(link)")
    run(team, "first")
    rank = team._processes[1]
    os.kill(rank.pid or 0, signal.SIGTERM)
    assert rank.exit_text(30) == "was killed by SIGTERM"

    assert team.lost_ranks() == "rank 1 was killed by SIGTERM"
    assert not team.is_idle


def test_rank_that_nobody_waits_for_is_refused(start: Start) -> None:
    """One beyond the team's size; of two connections of one rank, the later is its own."""
    team = start("""
        if rank == 0:
            while not os.path.exists("refused"): time.sleep(0.01)
        else:
            assert reach(rank=2).receive() is None
            given_up = reach()
        link = reach()
        assert rank == 0 or given_up.receive() is None
        open("refused", "w").close()
        join(link); serve(link)
    """)
    assert [outcome.state for outcome in run(team, "first")] == ["ended", "ended"]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("if rank == 1: sys.exit('no licence')", "rank 1 exited with code 1"),
        ("link = reach()\nif rank == 0: os.kill(os.getpid(), 11)", "rank 0 was killed by SIGSEGV"),
        ("link = reach()\nif rank == 1: link.close()", "rank 1 disconnected from the controller"),
        ("rank or reach()", "rank 1 of 2 did not join within 4 s (gpubench_timeout_s)"),
        (
            "link = reach()\nif rank == 1: join(link)",
            "rank 0 of 2 did not join within 1 s of another (distributed.divergence_s)",
        ),
    ],
)
def test_rank_that_does_not_join_is_named(start: Start, source: str, said: str) -> None:
    """With how it ended and what it wrote, or in time where they are; no file is left open."""
    before = open_files()
    with pytest.raises(GangError) as caught:
        start(f"{source}\ntime.sleep(600)", replace(LONG, timeout_s=4.0, divergence_s=1.0))
    error, hangs = caught.value, "did not join" in said
    assert str(error) == said + ("" if hangs else " while the gang of 2 was starting")
    assert error.output == ("no licence" if "code 1" in said else "")
    assert error.was_killed == ("was killed" in said)
    assert (error.hang, [*error.stacks]) == (hangs, [0, 1] if hangs else [])
    assert open_files() == before


def test_team_that_cannot_be_made_is_an_error(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the system refuses is said in a line, and nothing is left open."""
    before = open_files()
    with pytest.raises(GangError, match="could not start the gang of 2: no more processes"):
        start(kind=ExhaustedGang)
    assert ExhaustedGang.others.pop().was_killed

    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(GangError, match=r"could not start the gang of 2: .*/nowhere/python"):
        start()

    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    with pytest.raises(GangError, match=r"cannot create a folder .* '/nowhere/gpubench-gang-"):
        start()
    assert open_files() == before
