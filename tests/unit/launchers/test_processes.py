"""The processes of a gang: what they inherit, where they listen, how they end."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.environment.threads import SHARE, is_set_by_launcher
from gpubench_plugin.ranks.world import threads_per_rank
from tests.support.processes import is_running, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gpubench_plugin.launchers.gang.processes import RankProcesses
    from gpubench_plugin.launchers.gang.protocol import JoinInfo

    Launch = Callable[..., RankProcesses]

pytestmark = pytest.mark.slow


HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD)

TELL = """
import json, os
fds = {int(fd): os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
       if os.path.exists(f"/proc/self/fd/{fd}")}
told = {"environment": dict(os.environ), "pid": os.getpid(), "session": os.getsid(0), "fds": fds}
json.dump(told, open(f"told-{os.environ['RANK']}", "w"))
print("out", flush=True)
os.write(2, b"err")
"""


def test_each_rank_learns_its_place_and_nothing_of_another_launcher(
    launch: Launch, invitation: JoinInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As torchrun would set it up; what is not torchrun's is left alone."""
    for name in ("TORCHELASTIC_RUN_ID", "PET_NNODES", "ROLE_RANK", "GROUP_RANK", "RANK"):
        monkeypatch.setenv(name, "7")
    monkeypatch.setenv("LOCAL_DATA", "mine")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "mine")
    handlers = [signal.getsignal(number) for number in HANDLED]

    launcher = launch(TELL, size=2)

    assert launcher.wait(30)
    told = [json.loads((tmp_path / f"told-{rank}").read_text()) for rank in range(2)]
    for rank, one in enumerate(told):
        environment = one["environment"]
        assert {name: environment[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE")} == {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": "2",
        }
        assert environment["MASTER_ADDR"] == "127.0.0.1"
        assert environment["LOCAL_DATA"] == environment["GLOO_SOCKET_IFNAME"] == "mine"
        assert environment["OMP_NUM_THREADS"] == "3"
        assert environment.items() >= invitation.to_environment().items()
        unwanted = ("TORCHELASTIC_", "PET_", "ROLE_", "GROUP_")
        assert [name for name in environment if name.startswith(unwanted)] == []
        assert one["session"] == one["pid"]
        assert launcher.logs[rank].read_text() == "out\nerr"
    assert [signal.getsignal(number) for number in HANDLED] == handlers


def test_each_rank_gets_a_share_of_the_cores_where_the_user_set_no_threads(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which is not taken for the user's number; nor is that of a gang around this process."""
    for name in ("OMP_NUM_THREADS", SHARE):
        monkeypatch.setenv(name, "7")

    assert launch(TELL, size=2).wait(30)
    told = json.loads((tmp_path / "told-1").read_text())["environment"]
    assert told["OMP_NUM_THREADS"] == str(threads_per_rank(2))
    assert is_set_by_launcher(told)


def test_store_of_rank_zero_is_handed_over_and_listens_on_loopback_only(
    launch: Launch, tmp_path: Path
) -> None:
    """Rank zero inherits one socket, bound to 127.0.0.1; the other rank and this process none."""
    before = os.listdir("/proc/self/fd")  # noqa: PTH208 # the names are the point
    launcher = launch(
        """
        import json, os, socket
        fd = os.environ.get("GPUBENCH_STORE_FD")
        with open(f"told-{os.environ['RANK']}", "w") as file:
            json.dump(fd and socket.socket(fileno=int(fd)).getsockname(), file)
        """,
        size=2,
    )

    assert launcher.wait(30)
    zero, one = (json.loads((tmp_path / f"told-{rank}").read_text()) for rank in range(2))
    assert zero[0] == "127.0.0.1"
    assert one is None
    launcher.kill()
    assert os.listdir("/proc/self/fd") == before  # noqa: PTH208 # names are wanted


def test_kill_ends_what_the_ranks_have_started(launch: Launch, tmp_path: Path) -> None:
    """Also of a rank that is gone itself; a second time does nothing."""
    launcher = launch(
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
    assert launcher.exit_text(0, 30) == "exited with code 0"
    assert list(launcher.running_pids) == [1]

    launcher.kill()
    launcher.kill()

    assert launcher.running_pids == {}
    children = [int(file.read_text()) for file in files]
    wait_until(lambda: not any(is_running(child) for child in children))
