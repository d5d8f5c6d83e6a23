"""Worker processes of a gang, one per rank, configured by environment variables."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

from gpubench_plugin.distributed import LISTENER, threads_per_rank
from gpubench_plugin.environment import open_to_write
from gpubench_plugin.launchers.gang.warden import OrphanReaper

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from gpubench_plugin.launchers.gang.protocol import JoinInfo


_OF_TORCHRUN: Final = ("TORCHELASTIC_", "PET_")
_PLACE: Final = frozenset(
    (
        *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
        *("GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME"),
    )
)
_DEATH_S: Final = 5.0
"""A killed process is gone at once, unless the kernel holds it."""


class GangLauncher:
    """Starts `size` processes of `command`, with output outside of tests logged in `logs`.

    They lead sessions of their own: what is typed on the terminal reaches them through the
    controller only.
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
        self.beginnings = {rank: _size(log) for rank, log in self.logs.items()}
        """Bytes that were in each log before its rank began."""
        self.deaths: dict[int, int] = {}
        """By rank a file that can be read once the process has ended (Linux; elsewhere none)."""
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._warden = OrphanReaper()
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
                    with os.fdopen(open_to_write(self.logs[rank], append=True), "ab") as log:
                        self._processes[rank] = subprocess.Popen(
                            command,
                            cwd=folder,
                            env=environment,
                            stdin=subprocess.DEVNULL,
                            stdout=log,
                            stderr=log,
                            pass_fds=(store.fileno(),) if serves else (),
                            start_new_session=True,
                        )
                    self._warden.guard(self._processes[rank].pid)
                    self._watch(rank)
            except BaseException:
                self.kill()
                raise

    def _watch(self, rank: int) -> None:
        # Not before Linux 5.3, not in every sandbox: then the end of the connection has to do.
        if sys.platform == "linux":
            with suppress(OSError):
                self.deaths[rank] = os.pidfd_open(self._processes[rank].pid)

    @property
    def running_pids(self) -> dict[int, int]:
        """Pids of the running processes by rank."""
        return {r: p.pid for r, p in self._processes.items() if p.poll() is None}

    def exit_text(self, rank: int, timeout_s: float = 0.0) -> str:
        """How the process of `rank` ended; empty while it runs."""
        with suppress(subprocess.TimeoutExpired):
            return exit_code_text(self._processes[rank].wait(timeout_s))
        return ""

    def has_exited(self, rank: int) -> bool:
        """Whether the process of `rank` exited by itself."""
        code = self._processes[rank].poll()
        return code is not None and code >= 0

    def output_tail(self, rank: int, max_bytes: int) -> str:
        """The last `max_bytes` bytes of the output of `rank`."""
        path = self.logs[rank]
        with path.open("rb") as log:
            log.seek(max(self.beginnings[rank], path.stat().st_size - max_bytes))
            return log.read().decode(errors="replace")

    def wait(self, timeout_s: float) -> bool:
        """Wait for all processes to exit; False on timeout."""
        deadline = monotonic() + timeout_s
        return all(
            self.exit_text(rank, max(0.0, deadline - monotonic())) for rank in self._processes
        )

    def kill(self) -> None:
        """Kill the remaining processes with their children; idempotent."""
        processes, self._processes = self._processes, {}
        for process in processes.values():
            # Also of a rank that is gone: what it had started leads on in its session.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        for process in processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(_DEATH_S)
        self._warden.dismiss()
        while self.deaths:
            os.close(self.deaths.popitem()[1])


def _size(log: Path) -> int:
    return log.stat().st_size if log.exists() else 0


def _user_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The user's environment without variables of this process's own rank."""
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith(_OF_TORCHRUN) and name not in _PLACE
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
        "PYTHONUNBUFFERED": "1",  # what is printed is there when the rank is killed
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(threads_per_rank(size))),
    }


def _backend_variables(invitation: JoinInfo) -> dict[str, str]:
    """Bind backend sockets to this host and enable NCCL's flight recorder.

    Source: https://docs.pytorch.org/docs/stable/torch_nccl_environment_variables.html
    """
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    variables = {
        "GLOO_SOCKET_IFNAME": loopback,
        "NCCL_SOCKET_IFNAME": loopback,
        "TORCH_FR_BUFFER_SIZE": "2000",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_FR_DUMP_TEMP_FILE": str(invitation.dump_prefix),
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(invitation.pipe_prefix),
    }
    return {name: os.environ.get(name, value) for name, value in variables.items()}


def exit_code_text(code: int) -> str:
    """Describe an exit code; negative numbers are signals."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = " (possibly the out-of-memory killer)" if name == "SIGKILL" else ""
    return f"was killed by {name}{hint}"


_PATIENCE_S: Final = 3.0
_PAUSE_S: Final = 0.05


def save_flights(invitation: JoinInfo, folder: Path) -> list[Path]:
    """Request all flight recorder dumps and copy them into `folder`.

    NCCL's flight recorder tells which collectives each rank was in, and is written when a gang
    hangs. A rank on NCCL listens on a named pipe; where there is none, nothing is waited for.
    """
    pipes = _dump_files(invitation.pipe_prefix)
    for pipe in pipes:
        with suppress(OSError):
            _request_dump(pipe)
    if pipes:
        _wait_for(invitation.dump_prefix, len(pipes))
    copies = []
    for flight in _dump_files(invitation.dump_prefix):
        copies.append(folder / f"flight-recorder-{flight.name.rpartition('-')[2]}")
        shutil.copyfile(flight, copies[-1])
    return copies


def _request_dump(pipe: Path) -> None:
    writer = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    try:
        os.write(writer, b"1\n")
    finally:
        os.close(writer)


def _wait_for(flights: Path, number: int) -> None:
    """Wait for `number` files that have stopped growing."""
    deadline = monotonic() + _PATIENCE_S
    previous_sizes: list[int] = []
    while monotonic() < deadline:
        sleep(_PAUSE_S)
        sizes = [flight.stat().st_size for flight in _dump_files(flights)]
        if len(sizes) >= number and all(sizes) and sizes == previous_sizes:
            return
        previous_sizes = sizes


def _dump_files(prefix: Path) -> list[Path]:
    return sorted(prefix.parent.glob(f"{prefix.name}*"))
