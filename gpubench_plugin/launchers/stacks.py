"""Where every rank is: each writes the stacks of its threads into a file when it is asked.

faulthandler does it in C, also while the interpreter waits inside a collective.
"""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import tempfile
from contextlib import suppress
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SIGNAL: Final = signal.SIGUSR1

_LISTENER: Final = re.compile(
    r"/gpubench_plugin/"
    r'(launchers/gang/wire\.py"|launchers/watchdog\.py", line \d+ in _wait'
    r'|(launchers/signals|measure/probes/suspension)\.py", line \d+ in _listen)'
)

_PATIENCE_S: Final = 1.0
_PAUSE_S: Final = 0.01
_SETTLED: Final = 5
"""Looks at an unchanged file after which it is taken to be whole."""


def offer(path: Path) -> None:
    """From now on, write the stacks of this process to `path` on the signal."""
    file = path.open("w", encoding="utf-8")  # kept open for the life of this process
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
    written = {rank: _text(files[rank])[size:] for rank, size in before.items()}
    stacks = {rank: _without_listener(text) for rank, text in written.items()}
    return {rank: stack for rank, stack in stacks.items() if stack}


def here() -> str:
    """The stacks of this process, as it stands."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        return _without_listener(file.read())


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


def _without_listener(text: str) -> str:
    """The stacks but for the threads that wait for orders and signals, which are nobody's fault."""
    threads = text.strip().split("\n\n")
    return "\n\n".join(thread for thread in threads if not _LISTENER.search(thread))


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
