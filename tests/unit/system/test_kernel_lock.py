"""Tests of locks that end with their process, whatever children it leaves."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.cli.ab.saved_state import SavedState
from gpubench_plugin.results.journal import Journal
from gpubench_plugin.results.reader import is_being_written
from gpubench_plugin.system.files import KernelLock, locked
from tests.support.runs_builder import write_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

pytestmark = pytest.mark.slow


OWNER = """
import multiprocessing, os, sys, time
from pathlib import Path
from gpubench_plugin.results.journal import Journal

def work():
    print(os.getpid(), flush=True)
    time.sleep(60)

journal = Journal(Path(sys.argv[1]))
multiprocessing.get_context("fork").Process(target=work, daemon=True).start()
time.sleep(60)
"""


def test_a_killed_session_lets_go_of_its_run_though_a_child_lives(tmp_path: Path) -> None:
    """A worker of a DataLoader outlives its session: the run can be resumed all the same."""
    run = write_run(tmp_path, 1, status=None)
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, run.journal], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    child = int(owner.stdout.readline())
    try:
        assert is_being_written(run)
        owner.kill()
        owner.wait()
        os.kill(child, 0)  # it lives
        assert not is_being_written(run)
        Journal(run.journal).close()
    finally:
        os.kill(child, signal.SIGKILL)
        owner.stdout.close()


@contextmanager
def journal(folder: Path) -> Iterator[Path]:
    with Journal(folder / "metrics.jsonl"):
        yield folder / "metrics.jsonl"


@contextmanager
def small_files(folder: Path) -> Iterator[Path]:
    with locked(folder):
        yield folder


@contextmanager
def comparison(folder: Path) -> Iterator[Path]:
    with SavedState(folder=folder, request={}, identity={}, seed=1).locked():
        yield folder


def is_open(path: Path) -> bool:
    """Whether this process has `path` open."""
    return path.resolve() in {fd.resolve() for fd in Path("/proc/self/fd").iterdir()}


@pytest.mark.parametrize("hold", [journal, small_files, comparison])
def test_no_lock_of_ours_is_held_by_a_forked_child(
    hold: Callable[[Path], AbstractContextManager[Path]], tmp_path: Path
) -> None:
    """The owner lets go by closing its file alone, as its death does: the child has none."""
    read_end, write_end = os.pipe()
    child = None
    try:
        with hold(tmp_path) as path:
            assert is_open(path)
            child = os.fork()
            if child == 0:
                os.write(write_end, b"held" if is_open(path) else b"free")
                os._exit(0)
            assert os.read(read_end, 4) == b"free"
            with KernelLock(path, os.O_RDONLY) as another, pytest.raises(BlockingIOError):
                another.acquire(shared=True)  # the child has not let go of its parent's
    finally:
        if child:
            os.waitpid(child, 0)
        os.close(read_end)
        os.close(write_end)


def _append_in_child(lines: Journal) -> None:
    from gpubench_plugin.core.errors import ResultsError

    with pytest.raises(ResultsError, match="cannot write"):
        lines.append({"event": "from a child"})


def test_a_forked_child_writes_nothing_to_the_journal(tmp_path: Path) -> None:
    """Its descriptor is closed, and no other file that got the number is written to."""
    with Journal(tmp_path / "metrics.jsonl") as lines:
        child = multiprocessing.get_context("fork").Process(target=_append_in_child, args=(lines,))
        child.start()
        child.join()
        assert child.exitcode == 0
        lines.append({"event": "from the owner"})
    assert (tmp_path / "metrics.jsonl").read_text().count("event") == 1
