"""How the processes that tests start come to their end, and torchrun within this one."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
import traceback
from collections import defaultdict
from contextlib import ExitStack, chdir, contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import FrameType


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
    members = [session, *_descendants(session)]
    for number in (signal.SIGABRT, signal.SIGKILL):
        for member in reversed(members):  # ranks before their launcher, which would end them
            with suppress(ProcessLookupError):
                os.kill(member, number)
        time.sleep(1)


def _descendants(process: int) -> list[int]:
    """All processes that descend from one, parents first."""
    children = defaultdict(list)
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = int(status.read_text().rpartition(")")[2].split()[1])
            children[parent].append(int(status.parent.name))
    descendants = [*children[process]]
    for member in descendants:  # which grow meanwhile
        descendants += children[member]
    return descendants


def torchrun(*arguments: str, within_s: float) -> tuple[int, str, str]:
    """Run torchrun in this process, which has imported torch; its ranks are processes, as ever.

    Returns:
        Its exit code, and what it and its ranks wrote to standard output and error.

    Raises:
        TookTooLongError: some rank still ran after that time.
    """
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main

    code = 0
    with _standard_streams() as (out, err), _signals_as_they_were():
        try:
            with alarm(within_s):
                main([*arguments])
        except ChildFailedError:
            traceback.print_exc()
            code = 1
        except TookTooLongError:
            raise TookTooLongError(f"{_text(out)}\n{_text(err)}") from None
        return code, _text(out), _text(err)


@contextmanager
def surroundings(folder: Path, variables: Mapping[str, str]) -> Iterator[None]:
    """Work in a folder with these variables only, as a process that was started with them."""
    before, tempdir = dict(os.environ), tempfile.tempdir
    with chdir(folder):
        _replace_variables(variables)
        tempfile.tempdir = None
        try:
            yield
        finally:
            tempfile.tempdir = tempdir
            _replace_variables(before)


def _replace_variables(variables: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(variables)


@contextmanager
def alarm(within_s: float) -> Iterator[None]:
    """Interrupt what takes longer; processes that it started write where their threads are.

    Raises:
        TookTooLongError: it took longer.
    """

    def ring(*_: object) -> None:
        for process in reversed(_descendants(os.getpid())):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGABRT)
        time.sleep(1)  # for that
        raise TookTooLongError(f"it took longer than {within_s:g} s")

    with ringing(within_s, ring):
        yield


@contextmanager
def ringing(after_s: float, ring: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Call `ring` in the main thread if the block takes longer than `after_s` seconds."""
    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, after_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _standard_streams() -> Iterator[tuple[IO[str], IO[str]]]:
    """Files into which this process and those that it starts write instead."""
    with ExitStack() as stack:
        out, err = (
            stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace"))
            for _ in range(2)
        )
        stack.enter_context(redirect_stdout(out))
        stack.enter_context(redirect_stderr(err))
        for standard, file in ((1, out), (2, err)):
            kept = os.dup(standard)
            os.dup2(file.fileno(), standard)
            stack.callback(os.close, kept)
            stack.callback(os.dup2, kept, standard)
        yield out, err


def _text(file: IO[str]) -> str:
    """All that was written into a file, from its beginning."""
    file.flush()
    file.seek(0)
    return file.read().replace("\r\n", "\n")


@contextmanager
def _signals_as_they_were() -> Iterator[None]:
    """Undo that torchrun handles signals from its first rank on."""
    handled = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
    before = {number: signal.getsignal(number) for number in handled}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
