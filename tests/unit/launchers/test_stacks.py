"""Where a rank is, told by the rank itself whatever it is doing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.system import stacks
from tests.support.processes import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from gpubench_plugin.launchers.link import Invitation
    from gpubench_plugin.launchers.processes import RankProcess

pytestmark = pytest.mark.slow


BUSY = """
import os, time
from pathlib import Path
from socket import socketpair
from gpubench_plugin.system.helper_threads import HelperThread
from gpubench_plugin.system import stacks
from gpubench_plugin.launchers.link import INVITATION, Invitation, Link
rank = int(os.environ["RANK"])
def count_for_ever():
    while True: pass
def sleep_for_ever():
    time.sleep(600)
ends = socketpair()
HelperThread("orders", Link(ends[0]).receive).start()
if rank < 2:
    stacks.enable_dumps(Invitation.from_text(os.environ[INVITATION]).folder, rank)
if rank == 2:
    import signal
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
Path(f"ready-{rank}").touch()
(sleep_for_ever if rank else count_for_ever)()
"""


def test_every_rank_tells_where_it_is(
    launch: Callable[..., Mapping[int, RankProcess]], invitation: Invitation, tmp_path: Path
) -> None:
    """Computing or waiting; twice; without the thread that listens; who is silent is left out."""
    pids = {rank: process.pid or 0 for rank, process in launch(BUSY, size=3).items()}
    wait_until(lambda: len(list(tmp_path.glob("ready-*"))) == 3)
    asked = {rank: pid for rank, pid in pids.items() if rank < 2}

    first = stacks.request(invitation.folder, asked)
    second = stacks.request(invitation.folder, pids)

    assert list(first) == list(second) == [0, 1]
    for found in (first, second):
        assert "in count_for_ever" in found[0]
        assert "in sleep_for_ever" in found[1]
        assert "link.py" not in found[0] + found[1]
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
