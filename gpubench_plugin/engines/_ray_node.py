"""What runs on a node of a Ray cluster: a shard's session, and what brings its files back.

Between the two is a keeper, this module as a program: what the session has started ends with it,
and it ends with the task.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from gpubench_plugin.core.errors import ResultsError
from gpubench_plugin.engines.base import FOLDER, OUTPUT, Shard
from gpubench_plugin.environment.redaction import THREADS
from gpubench_plugin.system import files, scratch
from gpubench_plugin.system.child_process import child_pids, running
from gpubench_plugin.system.signals import die_with_parent, exit_on_signals, signals_ignored

CHUNK_BYTES: Final = 1 << 16
"""Ray keeps what has less than 100 KiB with the owner of a task, where it survives the node."""
_LOOK_S: Final = 0.5
_PR_SET_CHILD_SUBREAPER: Final = 36  # prctl(2), <linux/prctl.h>
_OF_RAY: Final = ("RAY_", "SPT_", "PYTHONBREAKPOINT", "PYTHONPATH", THREADS)


class Chunk(NamedTuple):
    """Part of the file at `path`, which ends after it, unless there is `more` to write with it.

    One that is replaced starts at `offset` zero.
    """

    path: str
    offset: int
    data: bytes
    more: bool


def node_name(host: str, node_id: str) -> str:
    """The name of a node, of which a host may have several."""
    return f"{host}-{node_id[:8]}"


def run(
    shard: Shard, seeds: Mapping[str, bytes], launcher: Sequence[str], endpoint: str
) -> Iterator[tuple[str, str] | Chunk | int]:
    """Run the session of `shard` on the files `seeds`; yields its node, its changes and its code.

    With a `launcher` it has ranks, which meet at the `endpoint`; yields where if that is empty.
    Where others have decided on it, nothing else is sent.
    """
    import ray

    address, is_first = ray.util.get_node_ip_address(), not endpoint
    with socket.create_server(("", 0)) as server:
        endpoint = endpoint or f"{address}:{server.getsockname()[1]}"
    yield node_name(socket.gethostname(), ray.get_runtime_context().get_node_id()), endpoint
    sent: dict[str, tuple[int, ...]] = {}
    with scratch.private_folder() as scratch_folder:
        for name, data in seeds.items():
            (scratch_folder.path / name).write_bytes(data)
        list(changes(scratch_folder.path, sent))  # those are there already
        options = (option.format(address=address, endpoint=endpoint) for option in launcher)
        with running(
            [sys.executable, "-P", "-m", __name__, *shard.command(sys.executable, *options)],
            cwd=Path.cwd() / shard.cwd.relative_to(shard.rootdir),
            environ={**_environment(), FOLDER: str(scratch_folder.path)},
            output=scratch_folder.path / OUTPUT,
            preexec_fn=die_with_parent,
            grace_s=0,
        ) as keeper:
            while (code := keeper.wait(_LOOK_S)) is None:
                yield from changes(scratch_folder.path, sent) if is_first else ()
        yield from changes(scratch_folder.path, sent, is_end=True) if is_first else ()
        yield code if code <= 128 else 128 - code


def _environment() -> dict[str, str]:
    """This node's variables and those that Ray gives a task, without those of its own processes.

    It sets one thread, and the working directory as a place to import from.
    """
    import psutil

    node = psutil.Process(os.getppid()).environ()
    own = {name: v for name, v in os.environ.items() if not name.startswith(_OF_RAY)}
    return own | {name: v for name, v in node.items() if name.startswith(_OF_RAY)}


def changes(
    folder: Path, sent: dict[str, tuple[int, ...]], *, is_end: bool = False
) -> Iterator[Chunk]:
    """What is new in `folder` since the last call with the same `sent`.

    Files ``*.jsonl`` and the output are appended to, by whole lines before the `is_end`.
    """
    # Path.rglob fails where a folder goes meanwhile.
    for path in sorted(Path(top, name) for top, _, names in os.walk(folder) for name in names):
        name = path.relative_to(folder).as_posix()
        with suppress(FileNotFoundError):
            status = path.lstat()
            stamp = status.st_ino, status.st_size, status.st_mtime_ns
            if not stat.S_ISREG(status.st_mode) or path.suffix == ".tmp":
                continue
            with path.open("rb") as file:
                if path.suffix == ".jsonl" or name == OUTPUT:
                    (offset,) = sent.get(name, (0,))
                    file.seek(offset)
                    data = file.read()
                    if not is_end and name != OUTPUT:
                        data = data[: data.rfind(b"\n") + 1]
                    sent[name] = (offset + len(data),)
                    for at in range(0, len(data), CHUNK_BYTES):
                        yield Chunk(name, offset + at, data[at : at + CHUNK_BYTES], more=False)
                elif sent.get(name) != stamp:
                    sent[name] = stamp
                    for data in iter(partial(file.read, CHUNK_BYTES), b""):
                        yield Chunk(name, 0, data, more=True)
                    yield Chunk(name, 0, b"", more=False)


class Receiver:
    """Writes chunks into a `folder`."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._held = bytearray()

    def take(self, chunk: Chunk) -> None:
        """Write the `chunk`, once there is no more of it.

        Raises:
            ResultsError: it is of a file outside the folder, or cannot be written.
        """
        self._held += chunk.data
        if chunk.more:
            return
        data, self._held = self._held, bytearray()
        path = (self._folder / chunk.path).resolve()
        if not path.is_relative_to(self._folder.resolve()):
            raise ResultsError(f"{chunk.path} is outside {self._folder}")
        with files.refusals("write"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            with path.open("r+b") as file:
                file.truncate(chunk.offset)
                file.seek(chunk.offset)
                file.write(data)


def _keep(command: Sequence[str]) -> int:
    """Run `command` and kill what it leaves; its exit code, or 128 and the number of its signal."""
    if keeper := os.fork():  # Ray kills a child of its process, which the keeper is to outlive
        return os.waitstatus_to_exitcode(os.waitpid(keeper, 0)[1])
    die_with_parent(signal.SIGTERM)
    os.setsid()
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # of all below
    try:
        with exit_on_signals():
            code = subprocess.call(command)
            return code if code >= 0 else 128 - code
    finally:
        with signals_ignored(), suppress(ChildProcessError):  # none is left
            while True:
                for pid in child_pids():
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                os.waitpid(-1, 0)


if __name__ == "__main__":
    sys.exit(_keep(sys.argv[1:]))
