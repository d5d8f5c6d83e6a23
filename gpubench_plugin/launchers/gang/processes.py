"""Worker processes of a gang, one per rank, configured by environment variables."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Final

from gpubench_plugin.environment import threads
from gpubench_plugin.launchers import stacks
from gpubench_plugin.launchers.gang.protocol import JoinInfo
from gpubench_plugin.ranks.world import LISTENER, threads_per_rank
from gpubench_plugin.system.child_process import Child, code_text

_TORCHRUN_PREFIXES: Final = ("TORCHELASTIC_", "PET_")
_RANK_VARIABLES: Final = frozenset(
    (
        *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
        *("GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME"),
    )
)
_KILL_TIMEOUT_S: Final = 5.0
"""A killed process is gone at once, unless it is in uninterruptible sleep (a driver, NFS)."""


class RankProcesses:
    """The `size` processes of `command`, with output outside of tests logged in `logs`.

    Each leads a session of its own, so that Ctrl-C reaches it through the controller only.
    """

    def __init__(
        self,
        size: int,
        *,
        command: Sequence[str],
        join_info: JoinInfo,
        logs: Path,
        folder: Path,
    ):
        self.size = size
        self.logs = {rank: logs / f"ws{size}-rank-{rank}.log" for rank in range(size)}
        logs.mkdir(exist_ok=True)
        self.log_offsets = {rank: stacks.size_of(log) for rank, log in self.logs.items()}
        """Size of each log when its rank started."""
        self._children: dict[int, Child] = {}
        with socket.socket() as store:
            store.bind(("127.0.0.1", 0))  # torch's own would listen on every interface
            store.listen(size)
            port = store.getsockname()[1]
            try:
                for rank in range(size):
                    environment = {
                        **_user_environment(os.environ),
                        **join_info.to_environment(),
                        **_rank_variables(rank, size, port),
                        **_backend_variables(join_info),
                    }
                    serves = rank == 0 and size > 1
                    if serves:
                        environment[LISTENER] = str(store.fileno())
                    with self.logs[rank].open("ab") as log:
                        self._children[rank] = Child(
                            command,
                            cwd=folder,
                            environ=environment,
                            stdout=log,
                            stderr=log,
                            pass_fds=(store.fileno(),) if serves else (),
                        )
            except BaseException:
                self.kill()
                raise

    @property
    def pidfds(self) -> dict[int, int]:
        """By rank a descriptor that is readable once the process has ended, where there are any."""
        return {r: child.ended for r, child in self._children.items() if child.ended is not None}

    @property
    def running_pids(self) -> dict[int, int]:
        """Pids of the running processes by rank."""
        return {r: child.pid for r, child in self._children.items() if child.code is None}

    def exit_text(self, rank: int, timeout_s: float = 0.0) -> str:
        """Exit text of the process of `rank`; empty while it runs."""
        code = self._children[rank].wait(timeout_s)
        return "" if code is None else code_text(code)

    def has_exited(self, rank: int) -> bool:
        """Whether the process of `rank` exited by itself."""
        code = self._children[rank].code
        return code is not None and code >= 0

    def output_tail(self, rank: int, max_bytes: int) -> str:
        """The last `max_bytes` bytes of the output of `rank`."""
        path = self.logs[rank]
        with path.open("rb") as log:
            log.seek(max(self.log_offsets[rank], path.stat().st_size - max_bytes))
            return log.read().decode(errors="replace")

    def wait(self, timeout_s: float) -> bool:
        """Wait for all processes to exit; False on timeout."""
        deadline = monotonic() + timeout_s
        return all(
            self.exit_text(rank, max(0.0, deadline - monotonic())) for rank in self._children
        )

    def kill(self) -> None:
        """Kill the remaining processes with their children; idempotent."""
        children = [*self._children.values()]
        self._children = {}
        for child in children:
            child.kill()
        for child in children:
            child.wait(_KILL_TIMEOUT_S)
            child.close()


def _user_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The user's environment without variables of this process's own rank."""
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith(_TORCHRUN_PREFIXES) and name not in _RANK_VARIABLES
    }


def _rank_variables(rank: int, size: int, port: int) -> dict[str, str]:
    """Variables that torchrun would set."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "PYTHONUNBUFFERED": "1",  # keeps the output of a killed rank
        **_thread_variables(size),
    }


def _thread_variables(size: int) -> dict[str, str]:
    """An equal share of the cores, marked as such, unless the user set a number."""
    if os.environ.get(threads.VARIABLE) and not threads.is_set_by_launcher(os.environ):
        return {}
    return dict.fromkeys((threads.VARIABLE, threads.SHARE), str(threads_per_rank(size)))


def _backend_variables(join_info: JoinInfo) -> dict[str, str]:
    """Bind backend sockets to this host and enable NCCL's flight recorder.

    Source: https://docs.pytorch.org/docs/stable/torch_nccl_environment_variables.html
    """
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    variables = {
        "GLOO_SOCKET_IFNAME": loopback,
        "NCCL_SOCKET_IFNAME": loopback,
        "TORCH_FR_BUFFER_SIZE": "2000",  # the default of torch 2.13, for older ones, too
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_FR_DUMP_TEMP_FILE": str(join_info.dump_prefix),
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(join_info.pipe_prefix),
    }
    return {name: os.environ.get(name, value) for name, value in variables.items()}


_DUMP_TIMEOUT_S: Final = 3.0
"""Long enough for NCCL to write the buffer of each rank, short in the report of a hang; not
measured."""


def save_flights(join_info: JoinInfo, folder: Path) -> list[Path]:
    """Request all flight recorder dumps and copy them into `folder`.

    NCCL's flight recorder holds the last collectives of each rank, and is dumped when a gang hangs.
    A rank on NCCL listens on a named pipe; without pipes nothing is waited for.
    """
    pipes = _dump_files(join_info.pipe_prefix)
    for pipe in pipes:
        write_to_pipe(pipe)

    def sizes() -> list[int]:
        sizes = [flight.stat().st_size for flight in _dump_files(join_info.dump_prefix)]
        return sizes if len(sizes) >= len(pipes) and all(sizes) else []

    if pipes:
        stacks.wait_until_stable(sizes, _DUMP_TIMEOUT_S)
    copies = []
    for flight in _dump_files(join_info.dump_prefix):
        copies.append(folder / f"flight-recorder-{flight.name.rpartition('-')[2]}")
        shutil.copyfile(flight, copies[-1])
    return copies


def write_to_pipe(pipe: Path) -> None:
    """Wake up the process that reads the named `pipe`, if there is one."""
    with suppress(OSError):
        writer = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(writer, b"1\n")
        finally:
            os.close(writer)


def _dump_files(prefix: Path) -> list[Path]:
    return sorted(prefix.parent.glob(f"{prefix.name}*"))
