"""The processes of the other ranks: where they are, how they ended, and what they are doing."""

from __future__ import annotations

import os
import socket
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpubench_plugin.environment import place
from gpubench_plugin.launchers import stacks
from gpubench_plugin.launchers.gang import how_it_ended
from gpubench_plugin.launchers.scratch import private_folder
from gpubench_plugin.records import Json

_SHOWN: Final = 8
"""Ranks of other hosts that a report points to; their logs lie beside each other."""


@dataclass(frozen=True, kw_only=True)
class Peer:
    """One rank's process. Two with the same `place` see each other's process ids."""

    pid: int
    place: str
    host: str

    @classmethod
    def this_process(cls) -> Peer:
        """The process that asks."""
        host = socket.gethostname()
        return cls(pid=os.getpid(), place=place() or host, host=host)


class Peers:
    """The processes of all ranks, as rank zero knows them from what each `told`.

    `logs` is where each writes its log.

    A private folder holds the stacks that they write when they are asked, and a `bell`, a named
    pipe by which one that waits in vain calls rank zero.
    """

    def __init__(self, told: Sequence[Json], logs: Path):
        peers = [Peer(**{name: one[name] for name in ("pid", "place", "host")}) for one in told]
        self._peers = peers
        self._logs = logs
        self._private = private_folder()
        self.folder = self._private.path
        self.bell = _bell(self.folder)
        os.mkfifo(self.bell)
        here = Peer.this_process().place
        self.here = {rank: peer.pid for rank, peer in enumerate(peers) if peer.place == here}

    def stacks(self, but: Collection[int] = ()) -> dict[int, str]:
        """Where each rank is, but for the dead ones; of one on another host, where to read it."""
        asked = {rank: pid for rank, pid in self.here.items() if rank not in but}
        found = stacks.ask(asked, {rank: stacks.file_of(self.folder, rank) for rank in asked})
        elsewhere = [rank for rank in range(len(self._peers)) if rank not in self.here]
        for rank in elsewhere[:_SHOWN]:
            log = self._logs / f"rank-{rank}.log"
            found[rank] = f"on {self._peers[rank].host}: see {log} there"
        return found

    def close(self) -> None:
        """Remove the private folder."""
        self._private.remove()


def offer_stacks(folder: Path, rank: int) -> None:
    """Write the stacks of this process into `folder` on the signal, where it is on this host."""
    if folder.is_dir():
        stacks.offer(stacks.file_of(folder, rank))


def ring(folder: Path) -> None:
    """Have rank zero find out where everybody is, where it is on this host."""
    with suppress(OSError):
        descriptor = os.open(_bell(folder), os.O_WRONLY | os.O_NONBLOCK)
        os.write(descriptor, b"!")
        os.close(descriptor)


def said_of(status: int | None) -> str:
    """How a process ended, from its wait status where that is known."""
    if status is None:
        return "ended (torchrun's own report says how)"
    with suppress(ValueError):
        return how_it_ended(os.waitstatus_to_exitcode(status))
    return f"ended with the wait status {status}"


def _bell(folder: Path) -> Path:
    return folder / "bell"
