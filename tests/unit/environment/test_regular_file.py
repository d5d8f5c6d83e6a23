"""Tests of untrusted files, which may be of any kind."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.core.errors import BrokenFile, ResultsError
from gpubench_plugin.environment import files
from gpubench_plugin.results import recorder
from gpubench_plugin.results.recorder import Recorder
from gpubench_plugin.results.run_directory import RunDirectory

if TYPE_CHECKING:
    from pathlib import Path


def put(path: Path, kind: str) -> None:
    if kind == "a named pipe":
        os.mkfifo(path)
    elif kind == "a folder":
        path.mkdir()
    elif kind == "a device":
        path.symlink_to("/dev/zero")
    else:
        with socket.socket(socket.AF_UNIX) as listener:
            folder = os.open(path.parent, os.O_RDONLY)  # the whole path may be too long
            listener.bind(f"/proc/self/fd/{folder}/{path.name}")
            os.close(folder)


KINDS = ["a named pipe", "a folder", "a device", "a socket"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_regular_file_is_not_read(tmp_path: Path, kind: str) -> None:
    """The message names its kind, and nothing blocks."""
    path = tmp_path / "file"
    put(path, kind)
    with pytest.raises(BrokenFile, match=f"file is not a regular file but {kind}"):
        files.read(path, limit=100)


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    """At the limit it is whole, beyond it is refused, also where the system tells no size."""
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    assert files.read(path, limit=100) == b"x" * 100
    with pytest.raises(BrokenFile, match="has 100 bytes; the limit is 99"):
        files.read(path, limit=99)


def test_a_file_that_tells_no_size_is_read(tmp_path: Path) -> None:
    """As those of ``/proc`` do not."""
    from pathlib import Path as AnyPath

    path = AnyPath("/proc/self/status")
    assert path.stat().st_size == 0
    assert files.read(path, limit=1 << 20).startswith(b"Name:")
    with pytest.raises(BrokenFile, match="bytes; the limit is 100"):
        files.read(path, limit=100)


def test_reasons_of_the_system_are_told(tmp_path: Path) -> None:
    """A missing file is the caller's to judge; all else is an error of ours."""
    with pytest.raises(FileNotFoundError):
        files.read(tmp_path / "file", limit=1)
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(ResultsError, match=r"cannot read .*loop: Too many levels"):
        files.read(tmp_path / "loop", limit=1)


@pytest.mark.parametrize("kind", [*KINDS, "a link"])
def test_nothing_is_written_to_what_is_no_regular_file(tmp_path: Path, kind: str) -> None:
    """A link is not followed, a pipe not waited for."""
    path, victim = tmp_path / "file", tmp_path / "victim"
    victim.write_text("mine")
    path.symlink_to(victim) if kind == "a link" else put(path, kind)
    with pytest.raises(OSError, match=r"not followed|not a regular file"):
        files.open_to_write(path, append=True)
    assert victim.read_text() == "mine"


def test_a_file_is_made_appended_to_and_emptied(tmp_path: Path) -> None:
    """As opening it plainly would do."""
    path = tmp_path / "file"
    for append, expected in ((True, b"a"), (True, b"aa"), (False, b"a")):
        descriptor = files.open_to_write(path, append=append)
        os.write(descriptor, b"a")
        os.close(descriptor)
        assert path.read_bytes() == expected


def test_the_log_of_a_run_follows_no_link(tmp_path: Path) -> None:
    """A run's folder may come from anywhere: a line in a file of the user's is not its log."""
    directory = RunDirectory.create(tmp_path, "default", "20260101T000000Z_run_000001")
    victim = tmp_path / "victim"
    victim.write_text("mine")
    directory.log.symlink_to(victim)
    with pytest.raises(ResultsError, match=r"cannot write .*run\.log: it is a symbolic link"):
        Recorder.start(
            directory, command=[], environment={}, configurations="{}\n", params={}, code={}
        )
    assert victim.read_text() == "mine"


def test_samples_of_ranks_follow_no_link(tmp_path: Path) -> None:
    """Neither that of the file nor that of the folder of the ranks."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "ranks").symlink_to(elsewhere)
    with pytest.raises(ResultsError, match="its folder is a symbolic link"):
        recorder.append_events(tmp_path / "ranks", 0, "test_a", [])
    assert list(elsewhere.iterdir()) == []
