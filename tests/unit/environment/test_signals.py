"""A process that does not outlive its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests.support.processes import is_running

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's"),
    pytest.mark.slow,
]

CHILD = """
import os, pathlib, sys, time
from gpubench_plugin.environment.signals import die_with_parent
die_with_parent()
pathlib.Path("new").write_text(str(os.getpid()))
os.rename("new", "pid")
while True: pass
"""
PARENT = """
import subprocess, sys
subprocess.Popen([sys.executable, "-c", sys.argv[1]]).wait()
"""


def test_child_is_gone_when_its_parent_is_killed(tmp_path: Path) -> None:
    """However busy it is, and though nobody told it."""
    parent = subprocess.Popen([sys.executable, "-c", PARENT, CHILD], cwd=tmp_path)
    deadline = time.monotonic() + 30
    while not (tmp_path / "pid").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    child = int((tmp_path / "pid").read_text())
    os.kill(child, 0)

    parent.kill()
    parent.wait()

    while is_running(child):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_parent_that_was_gone_already_counts_as_gone() -> None:
    """Otherwise a parent that ends early would be missed."""
    source = (
        "import os\nfrom gpubench_plugin.environment.signals import die_with_parent\n"
        "die_with_parent(parent=os.getppid() + 1)"
    )
    done = subprocess.run([sys.executable, "-c", source], check=False)
    assert done.returncode == -signal.SIGKILL
