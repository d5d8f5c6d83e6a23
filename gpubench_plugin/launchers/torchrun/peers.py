"""Processes of the other ranks: host, exit status and stacks."""

from __future__ import annotations

import os
import socket
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from gpubench_plugin.core.records import Json
from gpubench_plugin.launchers import stacks
from gpubench_plugin.launchers.gang.processes import write_to_pipe
from gpubench_plugin.system.child_process import code_text
from gpubench_plugin.system.scratch import private_folder


def this_process() -> Json:
    """Pid and host; processes with an equal `namespace` can signal each other by pid."""
    namespace = host = socket.gethostname()
    with suppress(OSError):
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = f"{boot_id} {Path('/proc/self/ns/pid').readlink()}"
    return {"pid": os.getpid(), "namespace": namespace, "host": host}


class Peers:
    """All ranks, whose `processes` described themselves by :func:`this_process`.

    Their logs are in `logs`. A private folder holds the stacks that they write on request, and the
    `alert_pipe` by which a rank that waits in vain alerts rank zero.
    """

    def __init__(self, processes: Sequence[Json], logs: Path):
        self._private = private_folder()
        self.folder = self._private.path
        self.alert_pipe = _alert_pipe(self.folder)
        os.mkfifo(self.alert_pipe)
        own = this_process()["namespace"]
        self.local_pids: dict[int, int] = {}
        self._remote: dict[int, str] = {}
        for rank, process in enumerate(processes):
            if process["namespace"] == own:
                self.local_pids[rank] = process["pid"]
            else:
                self._remote[rank] = f"on {process['host']}: see {logs / f'rank-{rank}.log'} there"

    def stacks(self, excluded: Collection[int] = ()) -> dict[int, str]:
        """Stacks of each live rank; for other hosts, the log file to look at."""
        pids = {rank: pid for rank, pid in self.local_pids.items() if rank not in excluded}
        return {**self._remote, **stacks.request(self.folder, pids)}

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
    """Describe the end of a process by its wait status.

    None if torchrun reaped the process before its status was read: only torchrun knows it then.
    """
    if status is None:
        return "ended (see torchrun's own report)"
    return code_text(os.waitstatus_to_exitcode(status))


def _alert_pipe(folder: Path) -> Path:
    return folder / "alert_pipe"
