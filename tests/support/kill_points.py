"""Operations killed by SIGKILL, or struck otherwise, at their points, and what others then find.

A point stands before every call that changes a folder or waits for the disk, and once more after
half of what a write was given; of a database, before every statement and every commit. First the
points are counted. Then, for each of them, a process is forked that does the same to a copy of the
same folder, and kills itself there.
"""

from __future__ import annotations

import builtins
import io
import os
import re
import shutil
import signal
import sqlite3
import sys
import traceback
import warnings
from contextlib import closing, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Ended = Callable[[str], None]
    """Tells that something has ended: from then on no kill may take it back."""
    Strike = Callable[[], object]
    """What happens at a point."""

CALLS = ("fsync", "ftruncate", "link", "mkdir", "remove", "rename", "replace", "rmdir", "unlink")
TIME = re.compile(rb"\d{4}-\d\d-\d\dT[0-9:.]+Z")
DRAWN = re.compile(rb"gpubench-[0-9a-f]{8}|(?<=[.-])[0-9a-f]{8}(?=\.(new|tmp|pt))")
"""Random parts of names."""
UNTOLD = (".lock", "-shm", "-wal", ".log", ".new")
"""Files whose content counts for nothing, or is what the database beside them says."""


class Scenario:
    """Something that is killed, what is done next, and what must hold after each of them."""

    def prepare(self, folder: Path) -> None:
        """Make what is there before."""

    def keep(self) -> None:
        """Keep what `prepare` made outside of its folder."""

    def renew(self) -> None:
        """Bring back what was kept; the folder is a new copy."""

    def act(self, folder: Path, ended: Ended) -> object:
        """Do what is killed."""
        raise NotImplementedError

    def look(self, folder: Path, ended: Sequence[str]) -> None:
        """Assert what holds after a kill: what had `ended` is there, other commands work."""

    def state(self, folder: Path) -> str:
        """What is equal for two folders that nobody can tell apart: checked once."""
        return state_of(folder)

    def again(self, folder: Path) -> object:
        """Do what brings everything to where `act` would have come."""
        raise NotImplementedError

    def verify(self, folder: Path, ended: Sequence[str]) -> None:
        """Assert what holds then."""


@dataclass(kw_only=True)
class Survival:
    """How many kills there were, and in how many different states they left the folder."""

    kills: int = 0
    states: int = 0


def survive(
    scenario: Scenario, folder: Path, *, apart: int = 1, statements_apart: int = 1
) -> Survival:
    """Kill `scenario` at all of its points, and check what each state that was left comes to.

    Args:
        scenario: what is killed.
        folder: an empty one for it, best in memory.
        apart: of so many points, it is killed at one.
        statements_apart: of so many statements in a row, one is a point.
    """
    first, copy = folder / "first", folder / "copy"
    first.mkdir()
    scenario.prepare(first)
    scenario.keep()
    survival, known = Survival(), set[object]()

    def begin() -> None:
        copied(first, copy)
        scenario.renew()

    def look(point: str, ended: Sequence[str]) -> None:
        survival.kills += 1
        state = (scenario.state(copy), *ended)
        if state not in known:
            known.add(state)
            survival.states += 1
            with named(point):
                _recover(scenario, copy, ended)

    begin()
    all_points = points(lambda ended: scenario.act(copy, ended))
    for at in _apart(all_points, statements_apart)[::apart]:
        begin()
        ended = killed(lambda ended: scenario.act(copy, ended), at)
        look(all_points[at], ended)
    return survival


def _apart(all_points: Sequence[str], statements_apart: int) -> list[int]:
    numbers = range(len(all_points))
    statements = [at for at in numbers if all_points[at].startswith("statement")]
    others = [at for at in numbers if not all_points[at].startswith("statement")]
    return sorted(others + statements[::statements_apart])


def _recover(scenario: Scenario, folder: Path, ended: Sequence[str]) -> None:
    scenario.look(folder, ended)
    scenario.again(folder)
    scenario.verify(folder, ended)


def points(operation: Callable[[Ended], object]) -> list[str]:
    """Every point that `operation` comes to, in order, with the name of its file."""
    told, status = _forked(operation, range(0), None)
    assert status == 0, "\n".join(told)
    return [line.removeprefix("point ") for line in told if line.startswith("point ")]


def killed(operation: Callable[[Ended], object], at: int) -> list[str]:
    """Let a process do it that kills itself at its point of that number; what had ended by then."""
    told, status = _forked(operation, range(at, at + 1), _kill)
    assert status == -signal.SIGKILL, "\n".join(told)
    return _ended(told)


def struck(operation: Callable[[Ended], object], at: range, strike: Strike) -> list[str]:
    """Let a process do it to which `strike` happens at those points; what had ended in the end."""
    told, status = _forked(operation, at, strike)
    assert status == 0, "\n".join(told)
    return _ended(told)


def _ended(told: Sequence[str]) -> list[str]:
    return [line.removeprefix("ended ") for line in told if line.startswith("ended ")]


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def state_of(folder: Path) -> str:
    """The digest of a folder's names and files; times and what was drawn do not count."""
    digest = sha256()
    names = {_constant(os.fsencode(path.relative_to(folder))): path for path in folder.rglob("*")}
    for name, path in sorted(names.items()):
        digest.update(name)
        if path.is_file() and not path.name.endswith(UNTOLD):
            digest.update(_constant(_content(path)))
    return digest.hexdigest()


def _constant(text: bytes) -> bytes:
    return TIME.sub(b"*", DRAWN.sub(b"*", text))


def _content(file: Path) -> bytes:
    if file.suffix != ".sqlite":
        return file.read_bytes()
    with closing(sqlite3.connect(file)) as database:
        return "\n".join(database.iterdump()).encode()


def copied(folder: Path, to: Path) -> None:
    """Make `to` a copy of a folder."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(folder, to, symlinks=True)


@contextmanager
def named(point: str) -> Iterator[None]:
    """Let what fails say where the process was killed, or struck."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"at {point}")
        raise


def _forked(
    operation: Callable[[Ended], object], at: range, strike: Strike | None
) -> tuple[list[str], int]:
    """What a process told that did it, and its exit code."""
    read, told = os.pipe()
    with warnings.catch_warnings():
        # Threads that this process may have, of torch for example, are not needed in the other.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        os.close(read)
        _do(operation, at, strike, told)
    os.close(told)
    with os.fdopen(read, encoding="utf-8", errors="replace") as lines:
        said = lines.read().splitlines()
    return said, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _do(operation: Callable[[Ended], object], at: range, strike: Strike | None, told: int) -> None:
    write = os.write  # as it is before it is watched

    def tell(line: str) -> None:
        write(told, f"{line}\n".encode(errors="replace"))

    code = 1
    sys.settrace(None)  # coverage would take longer than the operation, and is killed with it
    sys.dont_write_bytecode = True  # of a module that is imported for the first time
    try:
        signal.alarm(60)  # nothing here waits
        for output in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), output)
        _watch(_Points(tell, at, strike))
        operation(lambda what: tell(f"ended {what}"))
        code = 0
    except BaseException:
        tell(traceback.format_exc())
    finally:
        os._exit(code)


@contextmanager
def unwatched() -> Iterator[None]:
    """Let what is done inside have no points: it is the work of another process."""
    before, _Points.watching = _Points.watching, False
    try:
        yield
    finally:
        _Points.watching = before


class _Points:
    """Counts the points, and lets something happen at those of the numbers `at`."""

    watching = True

    def __init__(self, tell: Ended, at: range, strike: Strike | None):
        self._tell = tell
        self._at = at
        self._strike = strike
        self._number = 0

    def __call__(self, call: str, file: object) -> None:
        if not self.watching:
            return
        if isinstance(file, int):
            file = Path(f"/proc/self/fd/{file}").readlink()
        number, self._number = self._number, self._number + 1
        if self._strike is None:
            name = _constant(os.fsencode(Path(str(file)).name)).decode()
            self._tell(f"point {call} {name}")
        elif number in self._at:
            self._strike()


def _watch(reached: _Points) -> None:
    """Let `reached` know before everything that this process does to files and databases."""
    for name in CALLS:
        setattr(os, name, _announced(name, getattr(os, name), reached))
    os_open, os_write, io_open = os.open, os.write, io.open

    def opened(path: Any, flags: int, *args: Any, **more: Any) -> int:
        if flags & (os.O_CREAT | os.O_TRUNC):
            reached("open", path)
        return os_open(path, flags, *args, **more)

    def written(descriptor: int, data: Any) -> int:
        return _halved(descriptor, lambda part: os_write(descriptor, part), data, reached)

    class Raw(io.FileIO):
        def write(self, data: Any) -> int:
            return _halved(self.fileno(), super().write, data, reached)

    def file(path: Any, mode: str = "r", buffering: int = -1, *args: Any, **more: Any) -> Any:
        if not set(mode) & set("wax+"):
            return io_open(path, mode, buffering, *args, **more)
        if not isinstance(path, int):
            reached("open", path)
        closefd, opener = more.pop("closefd", True), more.pop("opener", None)
        raw = Raw(path, mode.replace("b", "").replace("t", ""), closefd, opener)
        buffered = (io.BufferedRandom if "+" in mode else io.BufferedWriter)(raw)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, *args, **more)

    os.open, os.write = opened, written
    builtins.open = io.open = file  # type: ignore[assignment] # open() is overloaded by mode
    if "sqlalchemy" in sys.modules:  # else nothing that was prepared has a database
        _watch_databases(reached)


def _announced(name: str, call: Callable[..., Any], reached: _Points) -> Callable[..., Any]:
    def announced(file: Any, *args: Any, **more: Any) -> Any:
        reached(name, file)
        return call(file, *args, **more)

    return announced


def _halved(file: int, write: Callable[[Any], int | None], data: Any, reached: _Points) -> int:
    data = bytes(data)
    reached("write", file)
    done = write(data[: len(data) // 2]) or 0
    reached("rest of the write", file)
    return done + (write(data[done:]) or 0)


def _watch_databases(reached: _Points) -> None:
    from sqlalchemy import Engine, event

    def statement(connection: object, cursor: object, text: str, *_: object) -> None:
        reached("statement", text.split(None, 1)[0].lower())

    event.listen(Engine, "before_cursor_execute", statement)
    event.listen(Engine, "commit", lambda _: reached("commit", ""))
