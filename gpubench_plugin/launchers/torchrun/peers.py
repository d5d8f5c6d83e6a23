"""Processes of the other ranks: host, exit status and stacks."""

from __future__ import annotations

import os
import socket
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpubench_plugin.core.records import Json
from gpubench_plugin.environment.child_process import code_text
from gpubench_plugin.environment.scratch import private_folder
from gpubench_plugin.launchers import stacks
from gpubench_plugin.launchers.gang.processes import write_to_pipe

_SHOWN_LOGS: Final = 8
"""Of ranks on other hosts; the logs of the others are beside them."""


@dataclass(frozen=True, kw_only=True)
class Peer:
    """One rank's process; ranks with equal `namespace` can signal each other by pid."""

    pid: int
    namespace: str
    host: str

    @classmethod
    def this_process(cls) -> Peer:
        """The current process."""
        host = socket.gethostname()
        return cls(pid=os.getpid(), namespace=_pid_namespace() or host, host=host)


def _pid_namespace() -> str:
    """Boot id and PID namespace, within which process ids mean the same; empty if unknown."""
    with suppress(OSError):
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot_id} {Path('/proc/self/ns/pid').readlink()}"
    return ""


class Peers:
    """Processes of all ranks, from the `records` that they sent; their logs are in `logs`.

    A private folder holds the stacks that they write on request, and the `alert_pipe` by which a
    rank that waits in vain alerts rank zero.
    """

    def __init__(self, records: Sequence[Json], logs: Path):
        names = ("pid", "namespace", "host")
        peers = [Peer(**{name: record[name] for name in names}) for record in records]
        self._peers = peers
        self._logs = logs
        self._private = private_folder()
        self.folder = self._private.path
        self.alert_pipe = _alert_pipe(self.folder)
        os.mkfifo(self.alert_pipe)
        own = Peer.this_process().namespace
        self.local_pids = {r: peer.pid for r, peer in enumerate(peers) if peer.namespace == own}

    def stacks(self, excluded: Collection[int] = ()) -> dict[int, str]:
        """Stacks of each live rank; for other hosts, the log file to look at."""
        pids = {rank: pid for rank, pid in self.local_pids.items() if rank not in excluded}
        stacks_by_rank = stacks.request(self.folder, pids)
        remote_ranks = [rank for rank in range(len(self._peers)) if rank not in self.local_pids]
        for rank in remote_ranks[:_SHOWN_LOGS]:
            log = self._logs / f"rank-{rank}.log"
            stacks_by_rank[rank] = f"on {self._peers[rank].host}: see {log} there"
        return stacks_by_rank

    def close(self) -> None:
        """Remove the private folder."""
        self._private.remove()


def offer_stacks(folder: Path, rank: int) -> None:
    """Dump the stacks of this process into `folder` on the signal, if it is on this host."""
    if folder.is_dir():
        stacks.enable_dumps(folder, rank)


def alert_root(folder: Path) -> None:
    """Alert rank zero, which then collects all stacks, if it is on this host."""
    write_to_pipe(_alert_pipe(folder))


def exit_text(status: int | None) -> str:
    """Describe the end of a process by its wait status, if known."""
    if status is None:
        return "ended (see torchrun's own report)"
    with suppress(ValueError):
        return code_text(os.waitstatus_to_exitcode(status))
    return f"ended with wait status {status}"


def _alert_pipe(folder: Path) -> Path:
    return folder / "alert_pipe"
