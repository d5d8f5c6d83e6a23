"""The processes of a gang, one per rank, each told its place by its environment."""

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
from gpubench_plugin.launchers.gang.warden import Warden

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from gpubench_plugin.launchers.gang.protocol import Invitation


_OF_TORCHRUN: Final = ("TORCHELASTIC_", "PET_")
_PLACE: Final = frozenset(
    (
        *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
        *("GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME"),
    )
)
_DEATH_S: Final = 5.0
"""A killed process is gone at once, unless the kernel holds it."""


class Launcher:
    """`size` processes of `command`; what each says outside of tests is in its log in `logs`.

    They lead sessions of their own: what is typed on the terminal reaches them through the
    controller only.
    """

    def __init__(
        self,
        size: int,
        *,
        command: Sequence[str],
        invitation: Invitation,
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
        self._warden = Warden()
        with socket.socket() as store:
            store.bind(("127.0.0.1", 0))  # torch's own would listen on every interface
            store.listen(size)
            port = store.getsockname()[1]
            try:
                for rank in range(size):
                    environment = {
                        **_inherited(os.environ),
                        **invitation.to_environment(),
                        **_place(rank, size, port),
                        **_of_backends(invitation),
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
    def living(self) -> dict[int, int]:
        """The processes that have not ended: pid by rank."""
        return {r: p.pid for r, p in self._processes.items() if p.poll() is None}

    def ended(self, rank: int, patience_s: float = 0.0) -> str:
        """How the process of `rank` ended, or nothing while it runs."""
        with suppress(subprocess.TimeoutExpired):
            return how_it_ended(self._processes[rank].wait(patience_s))
        return ""

    def exited(self, rank: int) -> bool:
        """Whether the process of `rank` has ended by itself, with an exit code."""
        code = self._processes[rank].poll()
        return code is not None and code >= 0

    def last_words(self, rank: int, most: int) -> str:
        """The end of what `rank` has written, `most` bytes of it."""
        path = self.logs[rank]
        with path.open("rb") as log:
            log.seek(max(self.beginnings[rank], path.stat().st_size - most))
            return log.read().decode(errors="replace")

    def wait(self, patience_s: float) -> bool:
        """Whether all processes ended by themselves within that time."""
        deadline = monotonic() + patience_s
        return all(self.ended(rank, max(0.0, deadline - monotonic())) for rank in self._processes)

    def kill(self) -> None:
        """End what still runs, with all that it has started; a second time does nothing."""
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


def _inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of the user, less what places this process among other ranks."""
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith(_OF_TORCHRUN) and name not in _PLACE
    }


def _place(rank: int, size: int, port: int) -> dict[str, str]:
    """What torchrun would set, so that a benchmark does not know who started it."""
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


def _of_backends(invitation: Invitation) -> dict[str, str]:
    """Keep the sockets of the backends on this host; have NCCL note what each rank was doing.

    Source: https://docs.pytorch.org/docs/stable/torch_nccl_environment_variables.html
    """
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    ours = {
        "GLOO_SOCKET_IFNAME": loopback,
        "NCCL_SOCKET_IFNAME": loopback,
        "TORCH_FR_BUFFER_SIZE": "2000",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_FR_DUMP_TEMP_FILE": str(invitation.flights),
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(invitation.pipes),
    }
    return {name: os.environ.get(name, value) for name, value in ours.items()}


def how_it_ended(code: int) -> str:
    """The ending of a process in words, from its exit code; of a signal the negative number."""
    if code >= 0:
        return f"exited with {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = " (perhaps by the kernel, out of memory)" if name == "SIGKILL" else ""
    return f"was killed by {name}{hint}"


_PATIENCE_S: Final = 3.0
_PAUSE_S: Final = 0.05


def keep_flights(invitation: Invitation, folder: Path) -> list[Path]:
    """Ask every rank for its flight recording, and copy what they wrote into `folder`.

    NCCL's flight recorder tells which collectives each rank was in, and is written when a gang
    hangs. A rank on NCCL listens on a named pipe; where there is none, nothing is waited for.
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
