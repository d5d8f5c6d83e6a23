"""Files into which our own output goes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gpubench_plugin.cli.ab.git import receives_own_output

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_redirected_stream_is_known_by_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the file itself, not by its name; a link to it does not grow, a pipe has no file."""
    log, other, link = (tmp_path / name for name in ("log", "other", "link"))
    other.touch()
    link.symlink_to(log)
    reading, writing = os.pipe()
    with log.open("w") as stream:
        monkeypatch.setattr("gpubench_plugin.cli.ab.git.STREAMS", (writing, stream.fileno()))
        assert receives_own_output(log)
        assert not any(
            receives_own_output(file) for file in (other, link, tmp_path, tmp_path / "none")
        )
        log.rename(other)
        assert receives_own_output(other)
    os.close(reading)
    os.close(writing)


def test_a_closed_stream_goes_into_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon may have neither."""
    (tmp_path / "log").touch()
    monkeypatch.setattr("gpubench_plugin.cli.ab.git.STREAMS", (10_000,))
    assert not receives_own_output(tmp_path / "log")
