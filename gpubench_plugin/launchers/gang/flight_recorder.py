"""NCCL's flight recorder: which collectives each rank was in, written when a gang hangs."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

    from gpubench_plugin.launchers.gang.invitation import Invitation

_PATIENCE_S: Final = 3.0
_PAUSE_S: Final = 0.05


def keep_flights(invitation: Invitation, folder: Path) -> list[Path]:
    """Ask every rank for its record, and copy what they wrote into `folder`.

    A rank on NCCL listens on a named pipe; where there is none, nothing is waited for.
    """
    pipes = _found(invitation.pipes)
    for pipe in pipes:
        with suppress(OSError):
            _ask(pipe)
    if pipes:
        _wait_for(invitation.flights, len(pipes))
    kept = []
    for flight in _found(invitation.flights):
        kept.append(folder / f"flight-recorder-{flight.name.rpartition('-')[2]}")
        shutil.copyfile(flight, kept[-1])
    return kept


def _ask(pipe: Path) -> None:
    writer = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    try:
        os.write(writer, b"1\n")
    finally:
        os.close(writer)


def _wait_for(flights: Path, number: int) -> None:
    """Until there are so many files, and none has grown for a while."""
    deadline = monotonic() + _PATIENCE_S
    last: list[int] = []
    while monotonic() < deadline:
        sleep(_PAUSE_S)
        sizes = [flight.stat().st_size for flight in _found(flights)]
        if len(sizes) >= number and all(sizes) and sizes == last:
            return
        last = sizes


def _found(beginning: Path) -> list[Path]:
    return sorted(beginning.parent.glob(f"{beginning.name}*"))
