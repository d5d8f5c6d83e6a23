"""Files that appear whole, in which order that happens, and what killed writers leave."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from gpubench_plugin.core.errors import BrokenFile, ResultsError
from gpubench_plugin.results.journal import Journal
from gpubench_plugin.system import files, json_files
from tests.support.kill_points import points

TEMPORARY = ".a.json.gpubench-0123abcd.tmp"


def written(folder: Path) -> None:
    files.write(folder / "a.json", lambda file: file.write(b"{}"))


def left(folder: Path, name: str = TEMPORARY, *, age_s: float = 3700) -> Path:
    """What a writer would leave that was killed so long ago."""
    path = folder / name
    path.write_text("half")
    os.utime(path, (time.time() - age_s,) * 2)
    return path


@pytest.mark.slow
def test_a_name_comes_after_its_content_and_is_made_durable(tmp_path: Path) -> None:
    """Content, fsync, name, fsync of the folder: power that fails leaves old or new, and whole."""
    assert points(lambda _: written(tmp_path)) == [
        "open .a.json.*.tmp",
        "write .a.json.*.tmp",
        "rest of the write .a.json.*.tmp",
        "fsync .a.json.*.tmp",
        "replace .a.json.*.tmp",
        f"fsync {tmp_path.name}",
    ]


@pytest.mark.slow
def test_a_removal_is_made_durable(tmp_path: Path) -> None:
    """Else a summary would come back that says of a run that goes on that it has ended."""
    written(tmp_path)
    calls = points(lambda _: json_files.remove(tmp_path / "a.json"))
    assert calls == ["unlink a.json", f"fsync {tmp_path.name}"]


@pytest.mark.slow
def test_a_line_of_the_journal_is_on_the_disk_before_the_next(tmp_path: Path) -> None:
    """Its name is, too: the journal is new."""

    def two_lines(_: object) -> None:
        with Journal(tmp_path / "metrics.jsonl") as journal:
            journal.append({"event": "first"})
            journal.append({"event": "second"})

    line = [f"{call} metrics.jsonl" for call in ("write", "rest of the write", "fsync")]
    opened = ["open metrics.jsonl", f"fsync {tmp_path.name}", "ftruncate metrics.jsonl"]
    assert points(two_lines) == [*opened, *line, *line]


def test_what_a_killed_writer_left_goes_with_the_next_write(tmp_path: Path) -> None:
    """Of whatever file it was a part; a young file may have a writer, a folder is none of ours."""
    left(tmp_path)
    left(tmp_path, ".b.pt.gpubench-00000000.tmp")
    young = left(tmp_path, ".c.json.gpubench-00000000.tmp", age_s=3500)
    (folder := tmp_path / ".d.json.gpubench-00000000.tmp").mkdir()
    os.utime(folder, (0, 0))
    written(tmp_path)
    assert {*tmp_path.iterdir()} == {tmp_path / "a.json", young, folder}


@pytest.mark.parametrize(
    "name",
    [
        ".a.json.0123abcd.tmp",
        ".a.json.gpubench-0123abcd.tmp~",
        "a.json.gpubench-0123abcd.tmp",
        ".a.json.gpubench-0123abcX.tmp",
        ".gpubench-0123abcd.tmp",
    ],
)
def test_a_file_of_another_name_stays(tmp_path: Path, name: str) -> None:
    """Whoever made it, it was not this program."""
    other = left(tmp_path, name)
    written(tmp_path)
    assert other.exists()


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    """At the limit it is whole, beyond it is refused; so is what is no regular file."""
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    assert files.read(path, limit=100) == b"x" * 100
    with pytest.raises(BrokenFile, match="has 100 bytes; the limit is 99"):
        files.read(path, limit=99)
    os.mkfifo(tmp_path / "pipe")
    for other in (tmp_path, tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(BrokenFile, match="not a regular file"):
            files.read(other, limit=100)


def test_reasons_of_the_system_are_told(tmp_path: Path) -> None:
    """A missing file is the caller's to judge; all else is an error of ours."""
    with pytest.raises(FileNotFoundError):
        files.read(tmp_path / "file", limit=1)
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(ResultsError, match=r"cannot read .*loop: Too many levels"):
        files.read(tmp_path / "loop", limit=1)
