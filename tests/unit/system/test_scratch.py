"""Temporary folders: a folder whose lock is free is garbage, and nothing else is."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpubench_plugin.system import scratch

PREFIX = "gpubench-gang-"
ABANDON = """
import os, signal
from gpubench_plugin.system.scratch import private_folder
folder = private_folder()
(folder.path / "file").touch()
(folder.path / "link").symlink_to(os.environ["TMPDIR"])
print(folder.path, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for temporary files, with a path short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="of-a-test-") as folder:
        monkeypatch.setattr(tempfile, "tempdir", os.path.realpath(folder))
        yield Path(os.path.realpath(folder))


def leftovers(parent: Path) -> list[Path]:
    """Paths of what is found, which is left as it is."""
    found = list(scratch.leftovers(parent, PREFIX))
    for folder in found:
        folder.release()
    return [folder.path for folder in found]


def test_folder_is_for_its_owner_alone_and_goes_with_all_in_it(temporary: Path) -> None:
    """Mode 0700, an open file less once it is removed; a second time does nothing."""
    before = set(Path("/proc/self/fd").iterdir())
    folder = scratch.private_folder()
    assert folder.path.parent == temporary
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    (folder.path / "file").touch()

    assert folder.remove()
    assert folder.remove()

    assert not folder.path.exists()
    assert set(Path("/proc/self/fd").iterdir()) == before


@pytest.mark.slow
def test_folder_of_a_killed_owner_is_removed_by_the_next_one(
    temporary: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Those of living owners stay, however old they are; links are not followed; it is logged."""
    living = scratch.private_folder()
    os.utime(living.path, (0, 0))
    command = [sys.executable, "-c", ABANDON]
    environ = {**os.environ, "TMPDIR": str(temporary)}
    killed = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    abandoned = Path(killed.stdout.strip())
    assert leftovers(temporary) == [abandoned]

    with caplog.at_level("INFO", "gpubench"):
        following = scratch.private_folder()

    assert caplog.messages == [f"removed {abandoned}, left over by a killed session"]
    assert set(temporary.iterdir()) == {living.path, following.path}
    living.remove()
    following.remove()


def as_a_file(path: Path) -> None:
    path.write_text("notes")


def as_a_link(path: Path) -> None:
    path.with_name("target").mkdir()
    path.symlink_to(path.with_name("target"))


def of_another_user(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    path.mkdir()
    os.chown(path, 12345, -1)


def of_another_host(path: Path) -> None:
    path.with_name(f"{PREFIX}mine").mkdir()


@pytest.mark.parametrize("make", [as_a_file, as_a_link, of_another_user, of_another_host])
def test_all_else_is_left_alone(temporary: Path, make: Callable[[Path], None]) -> None:
    """What no process of this user on this host has made there."""
    folder = scratch.private_folder()
    folder.remove()
    folder.path.mkdir()
    assert leftovers(temporary) == [folder.path]
    folder.path.rmdir()

    make(folder.path)

    assert leftovers(temporary) == []


def test_folder_that_is_taken_for_garbage_while_it_is_made_is_made_again(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may look between its making and its lock."""
    make, made = tempfile.mkdtemp, list[Path]()

    def mkdtemp(**options: str) -> str:
        made.append(Path(make(**options)))
        if len(made) == 1:
            (garbage,) = scratch.leftovers(temporary, PREFIX)
            garbage.remove()
        return str(made[-1])

    monkeypatch.setattr(tempfile, "mkdtemp", mkdtemp)
    folder = scratch.make(temporary, PREFIX)

    assert made[1:] == [folder.path]
    assert list(temporary.iterdir()) == [folder.path]
    folder.remove()


@pytest.mark.parametrize("length", [59, 60])
def test_socket_fits_whatever_the_folder_for_temporary_files(
    length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A unix socket's path is limited; where it would be too long, the folder is made in /tmp."""
    with tempfile.TemporaryDirectory(prefix="d" * (length - 5 - 8), dir="/tmp") as parent:
        assert len(parent) == length
        monkeypatch.setattr(tempfile, "tempdir", parent)
        folder = scratch.private_folder()
        assert folder.path.parent == Path(parent if length == 59 else "/tmp")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"{folder.path}/controller")
        folder.remove()
