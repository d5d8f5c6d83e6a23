"""Stack dumps: each rank writes the stacks of its threads to a file on request.

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

from gpubench_plugin.environment import helper_idents, record_in, recorded_idents, without_helpers

SIGNAL: Final = signal.SIGUSR1

_PATIENCE_S: Final = 1.0
_PAUSE_S: Final = 0.01
_SETTLED: Final = 5
"""Looks at an unchanged file after which it is taken to be whole."""


def file_of(folder: Path, rank: int) -> Path:
    """The file in `folder` into which `rank` writes its stacks."""
    return folder / f"stack-{rank}"


def enable_dumps(path: Path) -> None:
    """Dump the stacks of this process to `path` on the signal."""
    file = path.open("a", encoding="utf-8")  # kept open for the life of this process
    record_in(file.fileno())
    faulthandler.register(SIGNAL, file=file, all_threads=True, chain=False)


def request(processes: Mapping[int, int], files: Mapping[int, Path]) -> dict[int, str]:
    """Request and read the stacks of `processes` (pid by rank) from `files`.

    A rank that does not write within a second is left out.
    """
    old_sizes = {rank: _size(files[rank]) for rank in processes}
    for pid in processes.values():
        with suppress(ProcessLookupError):
            os.kill(pid, SIGNAL)
    _wait_until_settled(old_sizes, files)
    stacks = {}
    for rank, size in old_sizes.items():
        data = _data(files[rank])
        idents = recorded_idents(data.decode(errors="replace"))
        stacks[rank] = without_helpers(data[size:].decode(errors="replace"), idents)
    return {rank: stack for rank, stack in stacks.items() if stack}


def dump_own() -> str:
    """Stacks of this process."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        return without_helpers(file.read(), helper_idents())


def _wait_until_settled(old_sizes: Mapping[int, int], files: Mapping[int, Path]) -> None:
    deadline = monotonic() + _PATIENCE_S
    previous_sizes: dict[int, int] = {}
    stable_polls = 0
    while stable_polls < _SETTLED and monotonic() < deadline:
        sleep(_PAUSE_S)
        sizes = {rank: _size(files[rank]) for rank in old_sizes}
        all_written = all(sizes[rank] > size for rank, size in old_sizes.items())
        stable_polls = stable_polls + 1 if all_written and sizes == previous_sizes else 0
        previous_sizes = sizes


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _data(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""
