"""A process that does not outlive its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.processes import is_running, wait_until

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's"),
    pytest.mark.slow,
]

CHILD = """
import os, pathlib, sys, time
from gpubench_plugin.system.signals import die_with_parent
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
    wait_until((tmp_path / "pid").exists)
    child = int((tmp_path / "pid").read_text())
    os.kill(child, 0)

    parent.kill()
    parent.wait()

    wait_until(lambda: not is_running(child))


def test_parent_that_was_gone_already_counts_as_gone() -> None:
    """Otherwise a parent that ends early would be missed."""
    source = (
        "import os\nfrom gpubench_plugin.system.signals import die_with_parent\n"
        "os.getppid = iter([1, 2]).__next__\ndie_with_parent()"
    )
    done = subprocess.run([sys.executable, "-c", source], check=False)
    assert done.returncode == -signal.SIGKILL
