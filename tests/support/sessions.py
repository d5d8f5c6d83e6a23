"""How the sessions of pytest that tests start come to be, and how they end.

Importing torch takes longer than most of them do: those that need no interpreter of their own are
forked from a process that has imported it once.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import defaultdict
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

READ_AS_PYTHON_STARTS = ("PYTHON", "OMP_", "COVERAGE_")
"""Variables that a process reads before it could be told others."""

TORCHRUN = "torch.distributed.run"

IN_EVERY_SESSION = ("numpy", "pydantic", "yaml")
"""What the plugin imports in every session; beside torch, it is there before the fork."""


class TookTooLongError(Exception):
    """The session did not end; it has been killed. Its message is what it wrote, with stacks."""


def written_by(process: subprocess.Popen[str], within_s: float) -> tuple[str, str]:
    """What a session that was started in a process group of its own wrote to its end.

    Raises:
        TookTooLongError: it, or something it started, still ran after that time.
    """
    try:
        return process.communicate(timeout=within_s)
    except subprocess.TimeoutExpired:
        _kill(process.pid)
    try:
        raise TookTooLongError("\n".join(process.communicate(timeout=10)))
    except subprocess.TimeoutExpired:
        raise TookTooLongError("what it started holds its output") from None


def _kill(session: int) -> None:
    """End a session and all it started, when they have written where their threads are."""
    members = _descendants(session)
    for number in (signal.SIGABRT, signal.SIGKILL):
        for member in reversed(members):  # ranks before their launcher, which would end them
            with suppress(ProcessLookupError):
                os.kill(member, number)
        time.sleep(1)


def _descendants(process: int) -> list[int]:
    """A process and all that descend from it, parents first."""
    children = defaultdict(list)
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = int(status.read_text().rpartition(")")[2].split()[1])
            children[parent].append(int(status.parent.name))
    found = [process]
    for member in found:  # which grows meanwhile
        found += children[member]
    return found


class Preloaded:
    """The process that has imported torch, with sessions one after another.

    The ranks of torchrun are processes that it starts anew, as ever.
    """

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        kept = {k: v for k, v in os.environ.items() if not k.startswith("COVERAGE_")}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                env={**kept, "OMP_NUM_THREADS": "1"},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        atexit.register(self._end)

    def run(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str], within_s: float
    ) -> tuple[int, str, str]:
        """Run pytest or `TORCHRUN` in a folder; exit code, or minus the signal, and what it wrote.

        Args:
            command: the module's name and its arguments.
            folder: the working directory.
            environment: all its variables.
            within_s: how long it may take.

        Raises:
            TookTooLongError: it, or something it started, still ran after that time.
        """
        request = json.dumps([command, str(folder), dict(environment)]).encode()
        reply, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        out, err = Written(), Written()
        with reply:
            socket.send_fds(self._socket, [request], [out.end, err.end, theirs.fileno()])
            for end in (out.end, err.end, theirs.detach()):
                os.close(end)
            session = int(reply.recv(32))
            reply.settimeout(within_s)
            try:
                code = int(reply.recv(32))
            except TimeoutError:
                _kill(session)
                raise TookTooLongError(f"{out.text()}\n{err.text()}") from None
            except BaseException:
                _kill(session)
                raise
            return code, out.text(), err.text()

    def _end(self) -> None:
        self._socket.close()
        self._process.wait()


@cache
def preloaded() -> Preloaded:
    """This process' one."""
    return Preloaded()


class Written(threading.Thread):
    """What is written into the `end` of a pipe."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._from, self.end = os.pipe()
        self._bytes = b""
        self.start()

    def run(self) -> None:
        with os.fdopen(self._from, "rb") as pipe:
            self._bytes = pipe.read()

    def text(self) -> str:
        """All of it.

        Raises:
            TookTooLongError: some process still holds the pipe.
        """
        self.join(timeout=60)
        if self.is_alive():
            raise TookTooLongError("what it started holds its output")
        return self._bytes.decode(errors="replace").replace("\r\n", "\n")


def serve(connection: socket.socket) -> None:
    """Fork a session for each request, until the other side is gone."""
    while True:
        request, given, *_ = socket.recv_fds(connection, 1 << 20, 3)
        if not request:
            return
        session = os.fork()
        with socket.socket(fileno=given.pop()) as reply:
            if session == 0:
                connection.close()
                reply.close()
                _become_session(*json.loads(request), given)
            for output in given:
                os.close(output)
            with suppress(ConnectionError):  # who asked may be gone
                reply.send(str(session).encode())
            _, status = os.waitpid(session, 0)
            with suppress(ConnectionError):
                reply.send(str(os.waitstatus_to_exitcode(status)).encode())


def _become_session(
    command: list[str], folder: str, environment: dict[str, str], outputs: list[int]
) -> None:
    """Run a module as a process would that was started anew."""
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for standard, output in enumerate(outputs, start=1):
        os.dup2(output, standard)
        os.close(output)
    sys.argv, sys.path[0] = command, ""
    if command[0] == TORCHRUN:
        sys.exit(torchrun())
    coverage.process_startup()  # if the environment asks for it
    atexit.register(gc.freeze)  # as in `PYTEST`
    sys.exit(pytest.console_main())


if __name__ == "__main__":
    import coverage
    import pytest
    from torch.distributed.run import main as torchrun

    for library in IN_EVERY_SESSION:
        import_module(library)
    serve(socket.socket(fileno=int(sys.argv[1])))
