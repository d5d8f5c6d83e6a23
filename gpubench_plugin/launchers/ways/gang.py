"""Gangs: ranks on this host that the pytest session starts, and replaces after a failure."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from gpubench_plugin.launchers.ways.base import Launcher

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpubench_plugin.config.case import Case
    from gpubench_plugin.launchers.context import RunContext
    from gpubench_plugin.launchers.link import Invitation
    from gpubench_plugin.launchers.processes import RankCommand, RankProcess


def needs_ranks(context: RunContext, cases: Iterable[Case]) -> bool:
    """Whether any benchmark needs several ranks or its own processes.

    Then all do: what one process measured is compared with nothing but other processes.
    """
    is_asked = context.settings.isolate or context.settings.launches > 1
    return any(is_asked or (c.world_size > 1 and c.skip_reason() is None) for c in cases)


class Gang(Launcher):
    """Starts one process per rank, each in a session of its own."""

    @classmethod
    def claims(cls, context: RunContext, cases: Sequence[Case]) -> bool:
        """Where a benchmark needs ranks and nobody has started any."""
        return not context.ranks.started_world_size and needs_ranks(context, cases)

    def start(
        self, size: int, invitation: Invitation, call: RankCommand
    ) -> Mapping[int, RankProcess]:
        """Start the ranks; those started so far are killed if one cannot be."""
        from gpubench_plugin.launchers import processes

        shared = {
            **processes.user_environment(os.environ),
            **processes.invitation_variables(invitation),
            **processes.world_variables(size, invitation.folder, _free_port()),
        }
        with processes.all_or_none() as started:
            for rank in range(size):
                variables = {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
                log = call.logs / f"ws{size}-rank-{rank}.log"
                started[rank] = processes.ChildRank(call, variables, log)
        return started


def _free_port() -> int:
    """A port for groups that users' code makes; ours rendezvous in the private folder."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
