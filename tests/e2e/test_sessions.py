"""What the sessions of other tests rest on: torchrun within this process, and its end."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from threading import Thread
from time import sleep

import pytest

from tests.support.sessions import TookTooLongError, surroundings, torchrun

SILENT = ("--nproc-per-node=1", "--standalone", "-m", "pytest", "-q", "-p", "no:cacheprovider")


def test_torchrun_that_does_not_end_is_ended_with_its_stacks(tmp_path: Path) -> None:
    """A test that hangs is known by its name in the stacks, no rank of it stays; the next runs."""
    (tmp_path / "test_it.py").write_text(
        "import os, pathlib, time\n"
        "def test_that_hangs():\n"
        "    pathlib.Path('process').write_text(str(os.getpid()))\n"
        "    while True: time.sleep(0.1)\n"
    )
    process = tmp_path / "process"
    with surroundings(tmp_path, os.environ):
        Thread(target=ring_once_there, args=(process,), daemon=True).start()
        with pytest.raises(TookTooLongError, match="test_that_hangs"):
            torchrun(*SILENT, within_s=240)
        assert not Path("/proc", process.read_text(), "fd/1").exists()
        assert torchrun(*SILENT, "--version", within_s=60)[0] == 0


def ring_once_there(file: Path) -> None:
    """Let the time be up when the file has been written."""
    while not (file.exists() and file.read_text()):
        sleep(0.05)
    signal.raise_signal(signal.SIGALRM)
