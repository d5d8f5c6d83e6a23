"""Ranks that torchrun, srun or a pod has started, on one host or many.

The process with rank zero is the controller and starts one child, in which all tests of rank zero
run. The other ranks find their invitation in the store.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from typing import TYPE_CHECKING, ClassVar, Final

import pytest

from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.environment.torch_use import imported_torch
from gpubench_plugin.launchers.ways.base import Launcher
from gpubench_plugin.system.signals import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpubench_plugin.config.case import Case
    from gpubench_plugin.launchers.context import RunContext
    from gpubench_plugin.launchers.link import Invitation
    from gpubench_plugin.launchers.processes import RankCommand, RankProcess
    from gpubench_plugin.launchers.rank import Rank

_AGENT_STORE: Final = "TORCHELASTIC_USE_AGENT_STORE"
_RESTARTS: Final = "TORCHELASTIC_RESTART_COUNT"
_CLIENT: Final = {_AGENT_STORE: "True", _RESTARTS: "0"}
"""Variables by which groups that users' code makes, too, are clients of the store."""
_KEY: Final = "gpubench/invitation"
_READERS: Final = "gpubench/readers"


class Torchrun(Launcher):
    """Takes the ranks as they are: one that is lost ends the session."""

    replaces_ranks: ClassVar[bool] = False
    runs_all: ClassVar[bool] = True

    @classmethod
    def claims(cls, context: RunContext, cases: Sequence[Case]) -> bool:
        """Where several ranks have been started and there is a benchmark for them."""
        if not (cases and context.ranks.started_world_size):
            return False
        _refuse_flags_of_gangs(context)
        _refuse_initialized()
        return True

    def host(self) -> str | None:
        """The address of gloo's interface, or of that towards the master, if ranks span hosts."""
        from gpubench_plugin.ranks.process_group import on_loopback

        if on_loopback() or os.environ.get("LOCAL_WORLD_SIZE") == os.environ["WORLD_SIZE"]:
            return None
        if name := os.environ.get("GLOO_SOCKET_IFNAME"):
            import psutil

            for address in psutil.net_if_addrs().get(name, ()):
                if address.family in {socket.AF_INET, socket.AF_INET6}:
                    return address.address
        return _address_towards(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))

    def start(
        self, size: int, invitation: Invitation, call: RankCommand
    ) -> Iterator[tuple[int, RankProcess]]:
        """Invite the other ranks, and start rank zero."""
        from gpubench_plugin.launchers import processes
        from gpubench_plugin.ranks.process_group import hosted_store

        die_with_parent(signal.SIGTERM)  # what was measured is written
        self._store = hosted_store(serves=os.environ.get(_AGENT_STORE) != "True")
        self._store.set(_KEY, invitation.to_text())
        variables = {**os.environ, **processes.invitation_variables(invitation), **_CLIENT}
        yield 0, processes.ChildRank(call, variables, call.log(0, size), stays=True)


def join(config: pytest.Config, context: RunContext) -> Rank:
    """Make this process, started as a rank other than zero, obey the controller.

    Raises:
        UsageProblem: rank zero invites nobody.
    """
    from gpubench_plugin.launchers import output
    from gpubench_plugin.launchers.in_process import refuse_debugger
    from gpubench_plugin.launchers.link import Invitation
    from gpubench_plugin.launchers.rank import Rank
    from gpubench_plugin.ranks.process_group import hosted_store
    from gpubench_plugin.system.timeout_clock import TimeoutClock, wait_until

    refuse_debugger(config)
    _refuse_initialized()
    world, timeout_s = context.ranks.world, context.settings.timeout_s
    clock = TimeoutClock()
    is_invited = False
    try:
        store = hosted_store(timeout_s=timeout_s)
        is_invited = wait_until(lambda: store.check([_KEY]), lambda: clock.remaining(timeout_s))
    except (UsageProblem, RuntimeError) as error:  # there is none, or it is gone
        sys.stderr.write(f"gpubench: {error}\n")
    if not is_invited:
        message = (
            f"rank 0 of {world.size} did not join within {timeout_s:g} s (gpubench_timeout_s): "
            "were benchmarks collected there? All ranks must select the same tests"
        )
        if world.rank == 1:  # the others wait for rank zero to print errors
            raise pytest.UsageError(message)
        raise UsageProblem(message)
    os.environ |= _CLIENT
    text = store.get(_KEY).decode()
    if store.add(_READERS, 1) == world.size - 1:  # another session may follow on this store
        store.delete_key(_KEY)
        store.delete_key(_READERS)
    rank = Rank(config, Invitation.from_text(text))
    rank.silence()
    output.disable_output(config)
    return rank


def _address_towards(host: str, port: int) -> str:
    """The address of this host that packets to `host` have; nothing is sent."""
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0])


def _refuse_flags_of_gangs(context: RunContext) -> None:
    settings, size = context.settings, context.ranks.started_world_size
    flags = {
        "--world-size": settings.world_sizes,
        "--launches": settings.launches > 1,
        "--isolate": settings.isolate,
    }
    for flag, is_given in flags.items():
        if is_given:
            raise UsageProblem(
                f"{flag}: pytest would start the ranks itself, but torchrun has already "
                f"started {size} (WORLD_SIZE={size}); omit the option, or run pytest without "
                "torchrun"
            )
    count = os.environ.get(_RESTARTS, "0")
    if count != "0":  # its store has stale keys (pytorch #135712, #167288)
        raise UsageProblem(
            f"{_RESTARTS}={count}: torchrun restarted the ranks, and a benchmark cannot resume "
            "from there; start torchrun with --max-restarts=0, or run pytest "
            "--world-size=<ranks> without torchrun, which replaces failed ranks itself"
        )


def _refuse_initialized() -> None:
    """Refuse what only the process that runs the tests may own, which rank zero's is not."""
    torch = imported_torch()
    if torch is None:
        return
    what = ""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        what = "a process group (init_process_group)"
    elif torch.cuda.is_initialized():
        what = "CUDA"
    if what:
        raise UsageProblem(
            f"a conftest or test module has initialized {what} by the end of the collection, but "
            "under torchrun another process runs the tests of rank zero; do it in a fixture"
        )
