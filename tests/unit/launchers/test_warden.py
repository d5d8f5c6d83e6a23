"""What the ranks of a gang have started does not outlive the controller either."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpubench_plugin.launchers.gang.orphan_reaper import OrphanReaper, wait_and_kill
from tests.support.processes import is_running

pytestmark = pytest.mark.slow


CONTROLLER = """
import pathlib, subprocess, sys, time
from gpubench_plugin.launchers.gang.orphan_reaper import OrphanReaper
warden = OrphanReaper()
leader = subprocess.Popen(["sh", "-c", "sleep 600 & echo $! > pid; exit"], start_new_session=True)
warden.guard(leader.pid)
leader.wait()
if sys.argv[1:] == ["dismiss"]:
    warden.dismiss()
pathlib.Path("ready").touch()
time.sleep(600)
"""


def started(folder: Path, *arguments: str) -> tuple[subprocess.Popen[bytes], int]:
    """A controller, and what the leader of a group had started before it ended."""
    controller = subprocess.Popen([sys.executable, "-c", CONTROLLER, *arguments], cwd=folder)
    deadline = time.monotonic() + 60
    while not (folder / "ready").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return controller, int((folder / "pid").read_text())


def test_groups_are_killed_when_the_controller_is(tmp_path: Path) -> None:
    """Though the group's leader has ended, and nobody could tell what it had left behind."""
    controller, orphan = started(tmp_path)

    controller.kill()
    controller.wait()

    deadline = time.monotonic() + 60
    while is_running(orphan):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_dismissed_warden_kills_nothing(tmp_path: Path) -> None:
    """After an orderly end the numbers may belong to others."""
    controller, survivor = started(tmp_path, "dismiss")
    controller.kill()
    controller.wait()
    assert is_running(survivor)
    os.kill(survivor, 9)


def test_groups_that_are_gone_are_passed_over() -> None:
    """One after the other, whatever became of those before."""
    leader = subprocess.Popen(["sleep", "600"], start_new_session=True)
    wait_and_kill(["999999999\n", f"{leader.pid}\n"])
    assert leader.wait(60) == -9


def test_warden_that_was_killed_itself_disturbs_nobody() -> None:
    """Guarding and dismissing go on without it."""
    warden = OrphanReaper()
    warden._process.kill()
    warden._process.wait()
    warden.guard(999999999)
    warden.dismiss()
    warden.dismiss()
