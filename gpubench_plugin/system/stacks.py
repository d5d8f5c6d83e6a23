"""Stack dumps: each rank writes the stacks of its threads to a file on request.

faulthandler does it in C, also while the interpreter waits inside a collective.
"""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Final

from gpubench_plugin.system.helper_threads import without_helpers

SIGNAL: Final = signal.SIGUSR1

_TIMEOUT_S: Final = 1.0
"""Stacks take less than 0.1 s on a loaded machine; the user waits for the report meanwhile."""
_POLL_S: Final = 0.05
"""A file of the same size after this time is complete."""

_CALL_OF_PYTEST: Final = re.compile(
    r'  File ".*[\\/]_pytest[\\/](?:python|fixtures)\.py", line \d+ in '
    r"(?:pytest_pyfunc_call|call_fixture_func|_teardown_yield_fixture)$"
)
"""Frame in which pytest calls the code of a test or a fixture: it and those below it are pytest's,
33 of 34 frames of a test that sleeps on a rank (pytest 9.2)."""


def enable_dumps(folder: Path, rank: int) -> None:
    """Dump the stacks of this process, `rank`, into `folder` on the signal."""
    file = _file(folder, rank).open("a", encoding="utf-8")  # open for the life of this process
    faulthandler.register(SIGNAL, file=file, all_threads=True, chain=False)


def request(folder: Path, pids: Mapping[int, int]) -> dict[int, str]:
    """Request the stacks of the ranks with these `pids`, and read them from `folder`.

    A rank that does not write within a second is left out.
    """
    if not pids:
        return {}
    files = {rank: _file(folder, rank) for rank in pids}
    old_sizes = {rank: size_of(file) for rank, file in files.items()}
    for pid in pids.values():
        with suppress(ProcessLookupError):
            os.kill(pid, SIGNAL)

    def sizes() -> list[int]:
        sizes = {rank: size_of(file) for rank, file in files.items()}
        all_written = all(sizes[rank] > size for rank, size in old_sizes.items())
        return list(sizes.values()) if all_written else []

    wait_until_stable(sizes, _TIMEOUT_S)
    stacks = {}
    for rank, file in files.items():
        data = file.read_bytes() if file.exists() else b""
        stack = data[old_sizes[rank] :].decode(errors="replace")
        stacks[rank] = without_runner(without_helpers(stack))
    return {rank: stack for rank, stack in stacks.items() if stack}


def dump_own() -> str:
    """Stacks of this process."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        return without_runner(without_helpers(file.read()))


def without_runner(stacks: str) -> str:
    """Remove the frames of pytest below the test from faulthandler's `stacks`, the latest first.

    A thread that runs no test, or hangs in pytest itself, keeps all.
    """
    return "\n\n".join("\n".join(_own_frames(thread)) for thread in stacks.split("\n\n"))


def _own_frames(thread: str) -> list[str]:
    head, *frames = thread.split("\n")
    calls = [number for number, frame in enumerate(frames) if _CALL_OF_PYTEST.match(frame)]
    outermost = calls[-1] if calls else 0
    if outermost == 0:
        return [head, *frames]
    return [head, *frames[:outermost], f"  ({len(frames) - outermost} frames of pytest)"]


def wait_until_stable(sizes: Callable[[], list[int]], timeout_s: float) -> None:
    """Wait until `sizes` of files, empty while one is missing, no longer change."""
    deadline = monotonic() + timeout_s
    previous_sizes: list[int] = []
    while monotonic() < deadline:
        sleep(_POLL_S)
        current_sizes = sizes()
        if current_sizes and current_sizes == previous_sizes:
            return
        previous_sizes = current_sizes


def size_of(path: Path) -> int:
    """Size of the file in bytes; 0 if it does not exist."""
    return path.stat().st_size if path.exists() else 0


def _file(folder: Path, rank: int) -> Path:
    return folder / f"stack-{rank}"
