"""Tests of writing files whole."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.core.errors import ResultsError
from gpubench_plugin.system import json_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path


def test_text_is_written(tmp_path: Path) -> None:
    """The file holds the text, and nothing else is left in the folder."""
    json_files.write_text(tmp_path / "a.txt", "µ ± x\n")
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "µ ± x\n"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_file_is_as_readable_as_any_other(tmp_path: Path) -> None:
    """The file has the mode of an ordinary new file, not that of a private temporary one."""
    (tmp_path / "ordinary").touch()
    json_files.write_text(tmp_path / "ours", "")
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("ordinary", "ours")]
    assert modes[0] == modes[1]


def test_symbolic_link_is_replaced(tmp_path: Path) -> None:
    """What a symbolic link points to is not overwritten."""
    target = tmp_path / "target"
    target.write_text("precious")
    link = tmp_path / "link"
    link.symlink_to(target)
    json_files.write_text(link, "new")
    assert (target.read_text(), link.is_symlink()) == ("precious", False)


def test_size_limit_leaves_the_earlier_file(
    tmp_path: Path, files_end_at: Callable[[int], AbstractContextManager[None]]
) -> None:
    """Where the system takes only a part of the text, the earlier file stays as it was."""
    path = tmp_path / "summary.json"
    json_files.write_text(path, "earlier")
    with (
        files_end_at(100),
        pytest.raises(ResultsError, match=r"cannot write .*summary\.json: File too large"),
    ):
        json_files.write_text(path, "x" * 1000)
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("summary.json", "earlier")]


@pytest.mark.slow
def test_full_disk_leaves_the_earlier_file(
    small_disk: Path, fill_up: Callable[[Path], None]
) -> None:
    """On a full disk the error says so, and the earlier file stays as it was."""
    path = small_disk / "summary.json"
    json_files.write_text(path, "earlier")
    fill_up(small_disk)
    with pytest.raises(ResultsError, match=r"cannot write .*summary\.json: No space left"):
        json_files.write_text(path, "x" * 10_000)
    assert path.read_text() == "earlier"
    assert sorted(p.name for p in small_disk.iterdir()) == ["filler", "summary.json"]


@pytest.mark.slow
def test_read_only_folder_is_an_error(read_only_folder: Path) -> None:
    """In a read-only folder the error names the file and the system's reason."""
    with pytest.raises(ResultsError, match=r"cannot write .*a\.txt: (Read-only|Permission)"):
        json_files.write_text(read_only_folder / "a.txt", "text")


def test_interruption_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the middle passes through, and no temporary file is left."""

    def interrupted(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        json_files.write_text(tmp_path / "a.txt", "text")
    assert list(tmp_path.iterdir()) == []
