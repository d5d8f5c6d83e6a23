"""Where a rank is, told by the rank itself whatever it is doing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.launchers import stacks
from tests.support.processes import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpubench_plugin.launchers.gang.processes import RankProcesses
    from gpubench_plugin.launchers.gang.protocol import JoinInfo

pytestmark = pytest.mark.slow


BUSY = """
import os, time
from pathlib import Path
from socket import socketpair
from gpubench_plugin.system.helper_threads import HelperThread
from gpubench_plugin.launchers import stacks
from gpubench_plugin.launchers.gang.protocol import Link
rank = int(os.environ["RANK"])
def count_for_ever():
    while True: pass
def sleep_for_ever():
    time.sleep(600)
ends = socketpair()
HelperThread("orders", Link(ends[0]).receive).start()
if rank < 2:
    stacks.enable_dumps(Path(os.environ["GPUBENCH_GANG"]), rank)
Path(f"ready-{rank}").touch()
if rank == 2:
    import signal
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
Path(f"ready-{rank}").touch()
(sleep_for_ever if rank else count_for_ever)()
"""


def test_every_rank_tells_where_it_is(
    launch: Callable[..., RankProcesses], invitation: JoinInfo
) -> None:
    """Computing or waiting; twice; without the thread that listens; who is silent is left out."""
    launcher = launch(BUSY, size=3)
    folder = launcher.logs[0].parents[1]
    wait_until(lambda: len(list(folder.glob("ready-*"))) == 3)
    processes = launcher.running_pids
    asked = {rank: pid for rank, pid in processes.items() if rank < 2}

    first = stacks.request(invitation.folder, asked)
    second = stacks.request(invitation.folder, processes)

    assert list(first) == list(second) == [0, 1]
    for found in (first, second):
        assert "in count_for_ever" in found[0]
        assert "in sleep_for_ever" in found[1]
        assert "protocol.py" not in found[0] + found[1]
        assert found[1].count("most recent call first") == 1


def test_frames_of_pytest_below_the_test_are_counted() -> None:
    """They begin at the outermost call of pytest; a thread without a test keeps its frames."""
    in_fixture = [
        '  File "/p/test_a.py", line 3 in wait',
        '  File "/site/_pytest/fixtures.py", line 900 in call_fixture_func',
        '  File "/p/test_a.py", line 9 in test_a',
        '  File "/site/_pytest/python.py", line 187 in pytest_pyfunc_call',
        '  File "/site/pluggy/_callers.py", line 1 in _multicall',
    ]
    idle = ['  File "/p/pool.py", line 1 in run']
    heads = "Current thread 0x1 (most recent call first):", "Thread 0x2 (most recent call first):"
    text = "\n\n".join("\n".join(t) for t in ((heads[0], *in_fixture), (heads[1], *idle)))

    shown = stacks.without_runner(text).split("\n\n")

    assert shown[0].split("\n") == [heads[0], *in_fixture[:3], "  (2 frames of pytest)"]
    assert shown[1].split("\n") == [heads[1], *idle]
