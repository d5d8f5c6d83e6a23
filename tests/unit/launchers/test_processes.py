"""The processes of ranks: what they inherit, how they end, and that they do end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.environment.redaction import THREADS_SHARE, is_set_by_launcher
from gpubench_plugin.launchers.link import INVITATION
from gpubench_plugin.launchers.processes import (
    ChildRank,
    PeerRank,
    RankCommand,
    this_process,
)
from gpubench_plugin.ranks.world import STORE, threads_per_rank
from tests.support.processes import is_running, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from gpubench_plugin.launchers.link import Invitation
    from gpubench_plugin.launchers.processes import RankProcess

    Launch = Callable[..., Mapping[int, RankProcess]]

pytestmark = pytest.mark.slow


HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD)

TELL = """
import json, os
told = {"environment": dict(os.environ), "pid": os.getpid(), "session": os.getsid(0)}
json.dump(told, open(f"told-{os.environ['RANK']}", "w"))
print("out", flush=True)
os.write(2, b"err")
"""


def test_each_rank_learns_its_place_and_nothing_of_another_launcher(
    launch: Launch, invitation: Invitation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As torchrun would set it up; what is not torchrun's is left alone."""
    foreign = ("TORCHELASTIC_RUN_ID", "PET_NNODES", "ROLE_RANK", "GROUP_RANK", "RANK")
    own = {"LOCAL_DATA": "mine", "GLOO_SOCKET_IFNAME": "mine", "OMP_NUM_THREADS": "3"}
    for name, value in {**dict.fromkeys(foreign, "7"), **own}.items():
        monkeypatch.setenv(name, value)
    handlers = [signal.getsignal(number) for number in HANDLED]

    processes = launch(TELL, size=2)

    for rank, process in processes.items():
        assert process.exit_text(30) == "exited with code 0"
        assert process.output_tail(7) == "out\nerr"
        assert process.output_tail(2) == "rr"
        told = json.loads((tmp_path / f"told-{rank}").read_text())
        expected = {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            **own,
            STORE: f"{invitation.folder}/store",
            INVITATION: invitation.to_text(),
        }
        assert told["environment"].items() >= expected.items()
        unwanted = ("TORCHELASTIC_", "PET_", "ROLE_", "GROUP_")
        assert [name for name in told["environment"] if name.startswith(unwanted)] == []
        assert told["session"] == told["pid"]
    assert [signal.getsignal(number) for number in HANDLED] == handlers


def test_each_rank_gets_a_share_of_the_cores_where_the_user_set_no_threads(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which is not taken for the user's number; nor is that of a gang around this process."""
    for name in ("OMP_NUM_THREADS", THREADS_SHARE):
        monkeypatch.setenv(name, "7")

    for process in launch(TELL, size=2).values():
        assert process.exit_text(30) == "exited with code 0"
    told = json.loads((tmp_path / "told-1").read_text())["environment"]
    assert told["OMP_NUM_THREADS"] == str(threads_per_rank(2))
    assert is_set_by_launcher(told)


def test_kill_ends_what_the_ranks_have_started(launch: Launch, tmp_path: Path) -> None:
    """Also of a rank that is gone itself; a second time does nothing."""
    processes = launch(
        """
        import os, subprocess, time
        rank = os.environ["RANK"]
        child = subprocess.Popen(["sleep", "600"])
        open(f"new-{rank}", "w").write(str(child.pid))
        os.rename(f"new-{rank}", f"child-{rank}")
        if rank == "0": os._exit(0)
        time.sleep(600)
        """,
        size=2,
    )
    files = [tmp_path / f"child-{rank}" for rank in range(2)]
    wait_until(lambda: all(file.exists() for file in files))
    assert [processes[0].exit_text(30), processes[1].exit_text()] == ["exited with code 0", ""]
    assert processes[0].pid is None

    for process in processes.values():
        process.kill()
        process.kill()

    assert processes[1].pid is None
    assert [process.was_killed for process in processes.values()] == [False, True]
    children = [int(file.read_text()) for file in files]
    wait_until(lambda: not any(is_running(child) for child in children))


def test_rank_that_stays_is_of_this_process_group_and_ends_without_it(tmp_path: Path) -> None:
    """What is sent to the group reaches it; it alone is killed."""
    call = RankCommand(command=["sleep", "600"], folder=tmp_path, logs=tmp_path)
    rank = ChildRank(call, os.environ, tmp_path / "log", stays=True)
    assert os.getpgid(rank.pid or 0) == os.getpgid(0)
    rank.kill()
    assert rank.exit_text().startswith("was killed by SIGKILL")


def test_end_of_a_rank_that_is_no_child_is_known() -> None:
    """As the kernel tells it until its parent reaps it, after which it is only gone."""
    code = "import os, time; pid = os.fork() or time.sleep(600); print(pid, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        peer = PeerRank({**this_process(), "pid": pid})
        assert (peer.exit_text(), peer.where) == ("", "")
        os.kill(pid, signal.SIGTERM)
        assert peer.exit_text(30) == "was killed by SIGTERM"
        parent.communicate("\n")
    wait_until(lambda: peer.exit_text() == "ended (see its launcher's own report)")
    peer.kill()
