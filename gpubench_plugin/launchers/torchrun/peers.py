"""Processes of the other ranks: location, exit status and stacks."""

from __future__ import annotations

import os
import socket
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpubench_plugin.environment import namespace_id
from gpubench_plugin.launchers import stacks
from gpubench_plugin.launchers.gang import exit_code_text
from gpubench_plugin.launchers.scratch import private_folder
from gpubench_plugin.records import Json

_SHOWN: Final = 8
"""Ranks of other hosts that a report points to; their logs lie beside each other."""


@dataclass(frozen=True, kw_only=True)
class Peer:
    """One rank's process; equal `place` means a shared pid namespace."""

    pid: int
    place: str
    host: str

    @classmethod
    def this_process(cls) -> Peer:
        """The current process."""
        host = socket.gethostname()
        return cls(pid=os.getpid(), place=namespace_id() or host, host=host)


class Peers:
    """Processes of all ranks, from the records each rank sent.

    `logs` is where each writes its log.

    A private folder holds the stacks that they write when they are asked, and a `bell`, a named
    pipe by which one that waits in vain calls rank zero.
    """

    def __init__(self, records: Sequence[Json], logs: Path):
        peers = [
            Peer(**{name: record[name] for name in ("pid", "place", "host")}) for record in records
        ]
        self._peers = peers
        self._logs = logs
        self._private = private_folder()
        self.folder = self._private.path
        self.bell = _alert_pipe(self.folder)
        os.mkfifo(self.bell)
        own_namespace = Peer.this_process().place
        self.here = {
            rank: peer.pid for rank, peer in enumerate(peers) if peer.place == own_namespace
        }

    def stacks(self, excluded: Collection[int] = ()) -> dict[int, str]:
        """Stacks of each live rank; for other hosts, the log file to look at."""
        local_pids = {rank: pid for rank, pid in self.here.items() if rank not in excluded}
        stacks_by_rank = stacks.request(
            local_pids, {rank: stacks.file_of(self.folder, rank) for rank in local_pids}
        )
        remote_ranks = [rank for rank in range(len(self._peers)) if rank not in self.here]
        for rank in remote_ranks[:_SHOWN]:
            log = self._logs / f"rank-{rank}.log"
            stacks_by_rank[rank] = f"on {self._peers[rank].host}: see {log} there"
        return stacks_by_rank

    def close(self) -> None:
        """Remove the private folder."""
        self._private.remove()


def offer_stacks(folder: Path, rank: int) -> None:
    """Dump the stacks of this process into `folder` on the signal, if on the same host."""
    if folder.is_dir():
        stacks.enable_dumps(stacks.file_of(folder, rank))


def alert_root(folder: Path) -> None:
    """Alert rank zero, which then collects all stacks, if it is on the same host."""
    with suppress(OSError):
        descriptor = os.open(_alert_pipe(folder), os.O_WRONLY | os.O_NONBLOCK)
        os.write(descriptor, b"!")
        os.close(descriptor)


def exit_text(status: int | None) -> str:
    """Describe how a process ended, from its wait status if known."""
    if status is None:
        return "ended (see torchrun's own report)"
    with suppress(ValueError):
        return exit_code_text(os.waitstatus_to_exitcode(status))
    return f"ended with wait status {status}"


def _alert_pipe(folder: Path) -> Path:
    return folder / "bell"
