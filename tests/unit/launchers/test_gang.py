"""A gang of tiny ranks that speak the language of the wire and import nothing heavy."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from gpubench_plugin.launchers.gang.gang import Gang

from gpubench_plugin.core.errors import GangError
from gpubench_plugin.core.records import Json
from gpubench_plugin.launchers.deadlines import Timeouts
from tests.support.messages import mentions
from tests.support.processes import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Start = Callable[..., Gang]

pytestmark = pytest.mark.slow


LONG = Timeouts(timeout_s=60.0, failure_grace_s=60.0, divergence_s=60.0)
PATIENCE = Timeouts(timeout_s=60.0, failure_grace_s=0.2, divergence_s=0.2)

RANK = r"""
import os, signal, sys, time
from socket import AF_UNIX, socket
from gpubench_plugin.system.signals import die_with_parent
from gpubench_plugin.launchers import stacks
from gpubench_plugin.launchers.gang.protocol import JoinInfo, Link

die_with_parent()
rank = int(os.environ["RANK"])
invitation = JoinInfo.from_environment(os.environ)
stacks.enable_dumps(invitation.folder, rank)

def reach(token=invitation.token):
    end = socket(AF_UNIX)
    end.connect(str(invitation.socket))
    wire = Link(end)
    wire.send({"token": token, "rank": rank})
    return wire

def join(wire):
    wire.send({"count": 1, "digest": "same", "warnings": []})
    assert "run_directory" in wire.receive()

def serve(wire):
    while "finish" not in (order := wire.receive()):
        if "health_timeout_s" in order:
            if run == "exits" and rank == 1: os._exit(1)
            wire.send({"number": order["number"], "healthy": run == "first" or rank == 0})
            continue
        run = order["run"]
        log(order)
        act(order["run"])
        number = order["number"] + (order["run"] == "forgets" and rank == 1)
        wire.send({"number": number, "reports": [], "warnings": []})

def log(order):
    sent = f"sent-{order['number']}"
    if rank == 0:
        for number in (order["number"], 0):
            wire.send({"event": {"event": order["run"]}, "number": number})
        open(sent, "w").close()
    while not os.path.exists(sent): time.sleep(0.01)

def act(test):
    if test == "parts" and rank == 1: time.sleep(600)
    if test == "leaves" and rank == 1: os._exit(5)
    if test == "closes" and rank == 1: wire._socket.close(); time.sleep(600)
    if test == "writes":
        open(f"began-{rank}", "w").close()
        while not os.path.exists("go"): time.sleep(0.01)
    if test == "babbles" and rank == 1: wire._socket.sendall(b"what?\n"); time.sleep(600)
"""


@pytest.fixture
def start(tmp_path: Path, pytestconfig: pytest.Config) -> Iterator[Start]:
    """Starts gangs of two whose ranks run a piece of Python; they are killed at the end."""
    gangs = []

    def of(source: str = "wire = reach(); join(wire); serve(wire)", **changes: object) -> Gang:
        run = tmp_path / "run"
        run.mkdir(exist_ok=True)
        command = [sys.executable, "-c", RANK + textwrap.dedent(source)]
        given = {"command": command, "folder": tmp_path, "run": run, "timeouts": LONG, **changes}
        made = Gang(2, config=pytestconfig, **given)
        gangs.append(made)
        return made

    yield of
    for gang in gangs:
        gang.kill()


def test_gang_runs_order_after_order_and_leaves_nothing(start: Start) -> None:
    """The endings come in the order of ranks; after its end no folder and no open file is left."""
    before = os.listdir("/proc/self/fd")  # noqa: PTH208 # names are wanted
    gang = start()

    for test in ("first", "second"):
        events: list[Json] = []
        endings = gang.run(test, None, LONG, on_event=events.append)
        assert events == [{"event": test}], "those of the running test, and no answers"
        assert [(e.rank, e.state) for e in endings] == [(0, "ended"), (1, "ended")]
        assert gang.lost_ranks() == ""

    folder = gang._scratch.path
    assert oct(folder.stat().st_mode)[-3:] == "700"
    gang.close()
    gang.close()
    assert not folder.exists()
    assert not gang.is_idle
    assert os.listdir("/proc/self/fd") == before  # noqa: PTH208 # names are wanted


@pytest.mark.parametrize(
    ("test", "state", "told"),
    [
        ("parts", "stuck", "timed out 1 s after another rank passed"),
        ("leaves", "died", "exited with code 5"),
        ("closes", "died", "disconnected from the controller"),
        ("babbles", "died", "disconnected from the controller"),
        ("forgets", "stuck", "answered out of order"),
    ],
)
def test_rank_that_does_not_come_to_the_end_ends_the_gang(
    start: Start, test: str, state: str, told: str
) -> None:
    """It is told what became of every rank, and where those are that still run.

    What rank zero logged before is passed on.
    """
    gang, events = start(), list[Json]()

    # Only "parts" is about the limit. Coverage writes its data within os._exit: 0.11 s on an idle
    # machine, up to 0.6 s beside eight busy processes (2 ms without coverage).
    patience = replace(PATIENCE, divergence_s=1.0 if test == "parts" else 10.0)
    zero, one = gang.run(test, None, patience, on_event=events.append)

    assert events == [{"event": test}]
    assert zero.rank == 0
    assert (one.state, one.details[: len(told)]) == (state, told)
    assert ("in act" in one.stack) == (test not in {"leaves", "forgets"})
    assert not gang.is_idle


CONTROLLER = """
import sys
from pathlib import Path
from gpubench_plugin.launchers.gang.gang import Gang
from gpubench_plugin.launchers.deadlines import Timeouts

here = Path.cwd()
patience = Timeouts(timeout_s=float(sys.argv[2]), failure_grace_s=60.0, divergence_s=60.0)
start = Timeouts(timeout_s=60.0, failure_grace_s=60.0, divergence_s=60.0)
command = [sys.executable, "-c", sys.argv[1]]
gang = Gang(2, config=None, command=command, folder=here, run=here, timeouts=start)
print(*(ending.state for ending in gang.run("writes", None, patience)))
gang.close()
"""


def test_answer_that_came_while_the_controller_was_stopped_counts(tmp_path: Path) -> None:
    """The ranks end while their controller is stopped beyond the limit: they are heard after it."""
    source = RANK + "wire = reach(); join(wire); serve(wire)"
    controller = subprocess.Popen(
        [sys.executable, "-c", CONTROLLER, source, "1.5"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: len(list(tmp_path.glob("began-*"))) == 2)
    controller.send_signal(signal.SIGSTOP)
    (tmp_path / "go").touch()
    time.sleep(1.8)
    controller.send_signal(signal.SIGCONT)

    out, _ = controller.communicate(timeout=60)
    assert out == "ended ended\n"


@pytest.mark.parametrize(
    ("after", "sound", "whole"),
    [("first", True, True), ("disorder", False, True), ("exits", False, False)],
)
def test_gang_is_sound_if_every_rank_says_so(
    start: Start, after: str, sound: bool, whole: bool
) -> None:
    """One that cannot answer any more has ended the gang; the others run on."""
    gang = start()
    gang.run(after, None, LONG)
    assert (gang.is_healthy(60.0), gang.is_idle) == (sound, whole)


@pytest.mark.parametrize("before", ["", "os.fork() or time.sleep(600)"])
def test_rank_that_ends_between_two_orders_is_lost(start: Start, before: str) -> None:
    """It is noticed before the next order, also where a child holds its connection open."""
    gang = start(f"wire = reach(); join(wire)\n{before}\nserve(wire)")
    gang.run("first", None, LONG)
    os.kill(gang._processes.running_pids[1], signal.SIGTERM)
    assert gang._processes.exit_text(1, 30) == "was killed by SIGTERM"

    assert gang.lost_ranks() == "rank 1 was killed by SIGTERM"
    assert not gang.is_idle


@pytest.mark.parametrize(
    ("source", "said", "output", "killed"),
    [
        (
            "if rank == 1: sys.exit('no licence')\ntime.sleep(600)",
            "rank 1 exited with code 1",
            "no licence",
            False,
        ),
        (
            "wire = reach()\nif rank == 0: os.kill(os.getpid(), signal.SIGSEGV)\ntime.sleep(600)",
            "rank 0 was killed by SIGSEGV",
            "",
            True,
        ),
        (
            "wire = reach()\nif rank == 1: wire.close()\ntime.sleep(600)",
            "rank 1 disconnected from the controller",
            "",
            True,
        ),
    ],
)
def test_rank_that_ends_too_early_is_named(
    start: Start, source: str, said: str, output: str, killed: bool
) -> None:
    """With how it ended and what it wrote; the other one is ended, no file is left open."""
    before = os.listdir("/proc/self/fd")  # noqa: PTH208 # names are wanted

    with pytest.raises(GangError) as caught:
        start(source)

    assert str(caught.value) == f"{said} while the gang of 2 was starting"
    assert (caught.value.output, caught.value.was_killed) == (output, killed)
    assert os.listdir("/proc/self/fd") == before  # noqa: PTH208 # names are wanted


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            "wire = reach(); time.sleep(600)",
            "ranks 0-1 did not join, within 4 s (gpubench_timeout_s)",
        ),
        (
            "if rank == 1: time.sleep(600)\nwire = reach(); time.sleep(600)",
            "rank 1 did not join, within 4 s (gpubench_timeout_s)",
        ),
        (
            "wire = reach()\nif rank == 0: time.sleep(600)\njoin(wire); time.sleep(600)",
            "rank 0 did not join, within 1 s of another (distributed.divergence_s)",
        ),
    ],
)
def test_ranks_are_not_waited_for_without_end(start: Start, source: str, said: str) -> None:
    """Whether they do not come or do not tell what they have collected: that is a hang."""
    with pytest.raises(GangError) as caught:
        start(source, timeouts=replace(LONG, timeout_s=4.0, divergence_s=1.0))
    who, limit = said.split(", ")
    assert mentions(caught.value, who, "the gang of 2", limit)
    assert caught.value.hang


def test_who_does_not_know_the_token_is_not_let_in(start: Start) -> None:
    """Strangers, whatever they say, do not disturb the gang."""
    gang = start("""
        strangers = [reach("wrong"), reach("wr\\u00f6ng"), reach(None)]
        babbler = socket(AF_UNIX); babbler.connect(str(invitation.socket)); babbler.sendall(b"x\\n")
        assert [stranger.receive() for stranger in strangers] == [None] * 3
        wire = reach(); join(wire); serve(wire)
    """)
    assert [e.state for e in gang.run("first", None, LONG)] == ["ended", "ended"]


def test_gang_that_cannot_be_made_is_an_error(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the system refuses is said in a line, and nothing is left open."""
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    before = os.listdir("/proc/self/fd")  # noqa: PTH208 # names are wanted
    with pytest.raises(GangError, match=r"could not start the gang of 2: .*/nowhere/python"):
        start()

    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    with pytest.raises(GangError, match=r"cannot create a folder .* '/nowhere/gpubench-gang-"):
        start()
    assert os.listdir("/proc/self/fd") == before  # noqa: PTH208 # names are wanted
