"""Changes of a shard's folder on a node, written into its folder on the front; without Ray."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpubench_plugin.core.errors import ResultsError
from gpubench_plugin.engines import _ray_node
from gpubench_plugin.engines._ray_node import CHUNK_BYTES, Chunk, Receiver, changes
from tests.support.processes import is_running, wait_until


class Folders:
    """A folder on a node, and its copy on the front."""

    def __init__(self, tmp_path: Path):
        self.node, self.front = tmp_path / "node", tmp_path / "front"
        self.node.mkdir()
        self.front.mkdir()
        self.receiver = Receiver(self.front)
        self.sent: dict[str, tuple[int, ...]] = {}

    def bring(self, *, is_end: bool = False) -> list[Chunk]:
        """Bring over what has changed."""
        chunks = [*changes(self.node, self.sent, is_end=is_end)]
        for chunk in chunks:
            self.receiver.take(chunk)
        return chunks


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(tmp_path)


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


class TestChanges:
    def test_only_the_new_tail_of_a_log_travels(self, folders: Folders) -> None:
        """Each line once, however often one looks."""
        log = folders.node / "reports.jsonl"
        append(log, "one\n")
        folders.bring()
        append(log, "two\n")

        assert folders.bring() == [Chunk("reports.jsonl", 4, b"two\n", more=False)]
        assert folders.bring() == []
        assert (folders.front / "reports.jsonl").read_text() == "one\ntwo\n"

    def test_an_incomplete_line_waits_for_its_end(self, folders: Folders) -> None:
        """A writer may take it back; at the end of the session it comes as it is."""
        log = folders.node / "reports.jsonl"
        append(log, "one\nto")
        folders.bring()
        early = (folders.front / "reports.jsonl").read_text()
        log.write_text("one\nthree\nfo")
        folders.bring()
        later = (folders.front / "reports.jsonl").read_text()
        folders.bring(is_end=True)

        assert (early, later) == ("one\n", "one\nthree\n")
        assert (folders.front / "reports.jsonl").read_text() == "one\nthree\nfo"

    def test_a_folder_goes_meanwhile(
        self, folders: Folders, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As pytest's cache renames its own: the others come."""
        append(folders.node / "reports.jsonl", "one\n")
        (folders.node / "gone").mkdir()
        listed = os.scandir

        def scandir(path: str) -> object:
            if Path(path).name == "gone":
                raise FileNotFoundError(path)
            return listed(path)

        monkeypatch.setattr(os, "scandir", scandir)

        assert [chunk.path for chunk in folders.bring()] == ["reports.jsonl"]

    def test_output_does_not_wait_for_lines(self, folders: Folders) -> None:
        """A progress bar is seen as it grows."""
        append(folders.node / "output.txt", "..")
        folders.bring()

        assert (folders.front / "output.txt").read_text() == ".."

    def test_chunks_fit_beside_their_owner(self, folders: Folders) -> None:
        """Neither a long log nor a large file makes a chunk that Ray keeps on the node."""
        data = os.urandom(3 * CHUNK_BYTES + 17)
        (folders.node / "traces").mkdir()
        (folders.node / "traces" / "step.bin").write_bytes(data)
        append(folders.node / "samples.jsonl", "1\n" * CHUNK_BYTES)
        chunks = folders.bring()

        assert max(len(chunk.data) for chunk in chunks) == CHUNK_BYTES
        assert (folders.front / "traces" / "step.bin").read_bytes() == data
        assert (folders.front / "samples.jsonl").read_text() == "1\n" * CHUNK_BYTES

    def test_a_large_file_is_never_there_in_part(self, folders: Folders) -> None:
        """Until its last chunk the front has the earlier file."""
        file = folders.node / "summary.json"
        file.write_bytes(b"old")
        folders.bring()
        file.write_bytes(b"n" * (CHUNK_BYTES + 1))
        *first, last = changes(folders.node, folders.sent)
        for chunk in first:
            folders.receiver.take(chunk)

        assert (folders.front / "summary.json").read_bytes() == b"old"
        folders.receiver.take(last)
        assert (folders.front / "summary.json").read_bytes() == b"n" * (CHUNK_BYTES + 1)

    def test_a_shorter_file_replaces_a_longer_one(self, folders: Folders) -> None:
        """Nothing of the earlier content is left, also where nothing follows."""
        file = folders.node / "summary.json"
        file.write_text("long content")
        folders.bring()
        file.write_text("")
        folders.bring()

        assert (folders.front / "summary.json").read_bytes() == b""

    def test_links_and_unfinished_files_stay(self, folders: Folders) -> None:
        """What a link leads to is not the shard's, and a temporary file has no reader."""
        (folders.node / "secret.txt").symlink_to("/etc/hostname")
        (folders.node / ".a.json.gpubench-01234567.tmp").write_text("{")
        os.mkfifo(folders.node / "pipe")

        assert folders.bring() == []


class TestReceiver:
    @pytest.mark.parametrize("path", ["../other", "/tmp/other", "link/other", "a/../../other"])
    def test_nothing_is_written_outside(self, folders: Folders, path: str) -> None:
        """Whatever a node calls its files."""
        (folders.front / "link").symlink_to(folders.node)

        with pytest.raises(ResultsError, match="is outside"):
            folders.receiver.take(Chunk(path, 0, b"x", more=False))
        assert not [*folders.node.iterdir()]

    def test_a_file_that_cannot_be_written_is_named(self, folders: Folders) -> None:
        """As where the disk is full."""
        (folders.front / "taken").mkdir()

        with pytest.raises(ResultsError, match=r"cannot write .*taken"):
            folders.receiver.take(Chunk("taken", 0, b"x", more=False))


STARTS_A_DAEMON = """
import json, os, subprocess, sys, time
sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
child = subprocess.Popen(sleeper, start_new_session=True)
print(json.dumps([os.getpid(), child.pid]), flush=True)
time.sleep(float(sys.argv[1]))
os.kill(os.getpid(), int(sys.argv[2])) if len(sys.argv) > 2 else sys.exit(3)
"""


def keeper(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", _ray_node.__name__, sys.executable, "-c", STARTS_A_DAEMON]
    return subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
class TestKeeper:
    @pytest.mark.parametrize(("arguments", "code"), [(["0"], 3), (["0", "9"], 128 + 9)])
    def test_what_a_session_leaves_is_killed(self, arguments: list[str], code: int) -> None:
        """Also where it has left the session's process group; the code is the session's."""
        with keeper(*arguments) as process:
            assert process.stdout is not None
            pids = json.loads(process.stdout.readline())

        assert process.returncode == code
        assert not any(map(is_running, pids))

    def test_a_session_ends_with_its_task(self) -> None:
        """Ray kills the task's process and its children; nothing below goes on measuring."""
        with keeper("600") as process:
            assert process.stdout is not None
            pids = json.loads(process.stdout.readline())
            process.send_signal(signal.SIGKILL)

        wait_until(lambda: not any(map(is_running, pids)), 20)
