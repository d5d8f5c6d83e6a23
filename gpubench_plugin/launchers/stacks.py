"""Where every rank is: each writes the stacks of its threads into a file when it is asked.

faulthandler does it in C, also while the interpreter waits inside a collective.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Final

from gpubench_plugin.environment import idents_here, idents_noted, note_in, without_helpers

SIGNAL: Final = signal.SIGUSR1

_PATIENCE_S: Final = 1.0
_PAUSE_S: Final = 0.01
_SETTLED: Final = 5
"""Looks at an unchanged file after which it is taken to be whole."""


def file_of(folder: Path, rank: int) -> Path:
    """The file in `folder` into which `rank` writes its stacks."""
    return folder / f"stack-{rank}"


def offer(path: Path) -> None:
    """From now on, write the stacks of this process to `path` on the signal."""
    file = path.open("a", encoding="utf-8")  # kept open for the life of this process
    note_in(file.fileno())
    faulthandler.register(SIGNAL, file=file, all_threads=True, chain=False)


def ask(processes: Mapping[int, int], files: Mapping[int, Path]) -> dict[int, str]:
    """The stacks of each of the `processes`, pid by rank, in the `files` offered for them.

    A rank that does not write within a second is left out.
    """
    before = {rank: _size(files[rank]) for rank in processes}
    for pid in processes.values():
        with suppress(ProcessLookupError):
            os.kill(pid, SIGNAL)
    _wait_until_settled(before, files)
    stacks = {}
    for rank, size in before.items():
        data = _data(files[rank])
        idents = idents_noted(data.decode(errors="replace"))
        stacks[rank] = without_helpers(data[size:].decode(errors="replace"), idents)
    return {rank: stack for rank, stack in stacks.items() if stack}


def here() -> str:
    """The stacks of this process, as it stands."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        return without_helpers(file.read(), idents_here())


def _wait_until_settled(before: Mapping[int, int], files: Mapping[int, Path]) -> None:
    deadline = monotonic() + _PATIENCE_S
    last: dict[int, int] = {}
    unchanged = 0
    while unchanged < _SETTLED and monotonic() < deadline:
        sleep(_PAUSE_S)
        sizes = {rank: _size(files[rank]) for rank in before}
        complete = all(sizes[rank] > size for rank, size in before.items())
        unchanged = unchanged + 1 if complete and sizes == last else 0
        last = sizes


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _data(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""
