"""Processes of ranks: how each ended, its stack, and its output; and what NCCL recorded."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final, Self

from gpubench_plugin.environment.redaction import THREADS, THREADS_SHARE, is_set_by_launcher
from gpubench_plugin.environment.system_facts import interpreter_options
from gpubench_plugin.launchers.link import INVITATION
from gpubench_plugin.ranks.world import STORE, threads_per_rank
from gpubench_plugin.system import stacks
from gpubench_plugin.system.child_process import Child, code_text
from gpubench_plugin.system.signals import signals_blocked

if TYPE_CHECKING:
    import pytest

    from gpubench_plugin.core.records import Json
    from gpubench_plugin.launchers.link import Invitation

_LAUNCHER_PREFIXES: Final = ("TORCHELASTIC_", "PET_")
_RANK_VARIABLES: Final = frozenset(
    (
        *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
        *("GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME"),
    )
)
_END_UNSEEN: Final = "ended (see its launcher's own report)"
GOOD_ENDS: Final = (code_text(0), _END_UNSEEN)
"""Of ranks that were told to finish."""
_KILL_TIMEOUT_S: Final = 5.0
"""A killed process is gone at once, unless it is in uninterruptible sleep (a driver, NFS)."""
_EXIT_STATUS: Final = 49  # field 52 of proc_pid_stat(5), counted from after the name
_POLL_S: Final = 0.02


@dataclass(frozen=True, kw_only=True)
class RankCommand:
    """The pytest `command` of a rank, which runs in `folder`; it writes its log into `logs`."""

    command: Sequence[str]
    folder: Path
    logs: Path

    @classmethod
    def of_session(cls, config: pytest.Config, logs: Path) -> Self:
        """That of this session: an equivalent interpreter, and the same arguments.

        It imports from the folder only if this one does: ``pytest`` does not, but ``python -m
        pytest`` would.
        """
        invocation = config.invocation_params
        safe_path = ["-P"] if {"", str(invocation.dir)}.isdisjoint(sys.path) else []
        # Else a rank would erase what others have measured for pytest-cov.
        append = ["--cov-append"] if config.pluginmanager.hasplugin("_cov") else []
        python = [sys.executable, *interpreter_options(), *safe_path]
        command = [*python, "-m", "pytest", *append, *map(str, invocation.args)]
        return cls(command=command, folder=invocation.dir, logs=logs)

    def log(self, rank: int, size: int) -> Path:
        """The file with what `rank` of `size` writes outside of tests."""
        return self.logs / f"ws{size}-rank-{rank}.log"


class RankProcess(ABC):
    """The process of one rank, on this host if `pid` is not None."""

    pid: int | None = None
    where = ""
    """Of a rank on another host, for messages."""
    log: Path | None = None
    """File with what it writes outside of tests, if this process has one."""

    @abstractmethod
    def exit_text(self, timeout_s: float = 0.0) -> str:
        """How the process ended; empty while it runs."""

    was_killed = False
    """Whether it is known to have been ended by a signal."""

    def output_tail(self, max_bytes: int) -> str:
        """The last `max_bytes` bytes of what it wrote outside of tests, where there is a log."""
        return ""

    def kill(self) -> None:  # noqa: B027 # a rank that others started ends with its connection
        """Kill it with all that it started; idempotent."""


class ChildRank(RankProcess):
    """A rank that this process has started with those `variables`, writing into `log`.

    It leads a session of its own, so that Ctrl-C reaches it through the controller only, unless it
    `stays` in this process's group: then termination signals are blocked until it joins.
    """

    def __init__(
        self, call: RankCommand, variables: Mapping[str, str], log: Path, *, stays: bool = False
    ):
        log.parent.mkdir(exist_ok=True)
        self.log: Path = log
        self._log_offset = stacks.size_of(log)
        with signals_blocked() if stays else nullcontext():
            self._child = Child(
                call.command,
                cwd=call.folder,
                environ=variables,
                output=log,
                new_session=not stays,
            )

    @property
    def pid(self) -> int | None:  # type: ignore[override] # read-only here
        """Its pid while it runs."""
        return self._child.pid if self._child.code is None else None

    @property
    def was_killed(self) -> bool:  # type: ignore[override] # read-only here
        """Whether a signal has ended it."""
        return (self._child.code or 0) < 0

    def exit_text(self, timeout_s: float = 0.0) -> str:
        """Its exit code or signal; empty while it runs."""
        code = self._child.wait(timeout_s)
        return "" if code is None else code_text(code)

    def output_tail(self, max_bytes: int) -> str:
        """The end of its log."""
        with self.log.open("rb") as log:
            log.seek(max(self._log_offset, self.log.stat().st_size - max_bytes))
            return log.read().decode(errors="replace")

    def kill(self) -> None:
        """Kill it with its children."""
        self._child.kill()
        self._child.wait(_KILL_TIMEOUT_S)
        self._child.close()


class PeerRank(RankProcess):
    """A rank that somebody else started and that has described itself by :func:`this_process`."""

    def __init__(self, process: Json):
        is_local = process["namespace"] == this_process()["namespace"]
        self.pid = process["pid"] if is_local else None
        if not is_local:
            self.where = f" (on {process['host']})"

    def exit_text(self, timeout_s: float = 0.0) -> str:
        """Its exit code or signal, unless its parent has reaped it before that could be read.

        Unknown, so empty, on another host.
        """
        if self.pid is None:
            return ""
        deadline = monotonic() + timeout_s
        while (status := _stat(self.pid)) and status[0] != "Z":
            if monotonic() >= deadline:
                return ""
            sleep(_POLL_S)
        if not status:
            return _END_UNSEEN
        return code_text(os.waitstatus_to_exitcode(int(status[_EXIT_STATUS])))


def _stat(pid: int) -> list[str]:
    """Fields of the process's state after its name; empty if it is gone."""
    with suppress(OSError):
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return text.rpartition(")")[2].split()
    return []


def this_process() -> Json:
    """Pid and host; processes with an equal `namespace` can signal each other by pid."""
    namespace = host = socket.gethostname()
    with suppress(OSError):
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = f"{boot_id} {Path('/proc/self/ns/pid').readlink()}"
    return {"pid": os.getpid(), "namespace": namespace, "host": host}


def user_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The user's environment without variables of this process's own rank."""
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith(_LAUNCHER_PREFIXES) and name not in _RANK_VARIABLES
    }


def invitation_variables(invitation: Invitation) -> dict[str, str]:
    """Variables of every rank that this process starts."""
    return {
        INVITATION: invitation.to_text(),
        "PYTHONUNBUFFERED": "1",  # keeps the output of a killed rank
        # NCCL's flight recorder, see
        # https://docs.pytorch.org/docs/stable/torch_nccl_environment_variables.html
        "TORCH_FR_BUFFER_SIZE": "2000",  # the default of torch 2.13, for older ones, too
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_FR_DUMP_TEMP_FILE": str(invitation.folder / _DUMPS),
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(invitation.folder / _PIPES),
        **_set_by_user("TORCH_FR_", "TORCH_NCCL_D"),
    }


def local_ranks(size: int, invitation: Invitation) -> list[dict[str, str]]:
    """Variables of each of `size` ranks on this host: all that they need beside the user's own.

    They are torchrun's. The ranks rendezvous in files, and their sockets are bound to this host.
    """
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    shared = {
        **invitation_variables(invitation),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
        STORE: str(invitation.folder / "store"),
        "GLOO_SOCKET_IFNAME": loopback,
        "NCCL_SOCKET_IFNAME": loopback,
        **_set_by_user("GLOO_SOCKET_", "NCCL_SOCKET_"),
        **_thread_variables(size),
    }
    return [{**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(size)]


def _free_port() -> int:
    """A port for groups that users' code makes; ours rendezvous in the private folder."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _thread_variables(size: int) -> dict[str, str]:
    """An equal share of the cores, marked as such, unless the user set a number."""
    if os.environ.get(THREADS) and not is_set_by_launcher(os.environ):
        return {THREADS: os.environ[THREADS]}
    return dict.fromkeys((THREADS, THREADS_SHARE), str(threads_per_rank(size)))


def _set_by_user(*prefixes: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(prefixes)}


_DUMPS: Final = "flight-"
_PIPES: Final = "pipe-"
_DUMP_TIMEOUT_S: Final = 3.0
"""Long enough for NCCL to write the buffer of each rank, short in the report of a hang; not
measured."""


def save_flights(private: Path, folder: Path) -> list[Path]:
    """Request the flight recorder dumps of ranks with that `private` folder; copies in `folder`.

    NCCL's flight recorder holds the last collectives of each rank, and is dumped when one hangs.
    A rank on NCCL listens on a named pipe; without pipes nothing is waited for.
    """
    pipes = sorted(private.glob(f"{_PIPES}*"))
    for pipe in pipes:
        with (
            suppress(OSError),  # nobody reads it
            os.fdopen(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK), "wb") as writer,
        ):
            writer.write(b"1\n")

    def dumps() -> list[Path]:
        return sorted(private.glob(f"{_DUMPS}*"))

    def sizes() -> list[int]:
        sizes = [dump.stat().st_size for dump in dumps()]
        return sizes if len(sizes) >= len(pipes) and all(sizes) else []

    if pipes:
        stacks.wait_until_stable(sizes, _DUMP_TIMEOUT_S)
    copies = []
    for dump in dumps():
        copies.append(folder / f"flight-recorder-{dump.name.rpartition('-')[2]}")
        shutil.copyfile(dump, copies[-1])
    return copies
