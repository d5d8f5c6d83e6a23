"""Tests of untrusted files, which may be of any kind."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.core.errors import BrokenFile, ResultsError
from gpubench_plugin.environment import files

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
    """The message names it, and nothing blocks."""
    path = tmp_path / "file"
    put(path, kind)
    with pytest.raises(BrokenFile, match="file is not a regular file"):
        files.read(path, limit=100)


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    """At the limit it is whole, beyond it is refused."""
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    assert files.read(path, limit=100) == b"x" * 100
    with pytest.raises(BrokenFile, match="has 100 bytes; the limit is 99"):
        files.read(path, limit=99)


def test_reasons_of_the_system_are_told(tmp_path: Path) -> None:
    """A missing file is the caller's to judge; all else is an error of ours."""
    with pytest.raises(FileNotFoundError):
        files.read(tmp_path / "file", limit=1)
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(ResultsError, match=r"cannot read .*loop: Too many levels"):
        files.read(tmp_path / "loop", limit=1)
