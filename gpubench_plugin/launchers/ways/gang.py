"""Gangs: ranks on this host that the pytest session starts, and replaces after a failure."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, ClassVar

from gpubench_plugin.launchers.ways.base import Launcher
from gpubench_plugin.launchers.ways.in_process import needs_ranks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpubench_plugin.config.case import Case
    from gpubench_plugin.launchers.context import RunContext
    from gpubench_plugin.launchers.link import Invitation
    from gpubench_plugin.launchers.processes import RankCommand, RankProcess


class Gang(Launcher):
    """Starts one process per rank, each in a session of its own."""

    @classmethod
    def claims(cls, context: RunContext, cases: Sequence[Case]) -> bool:
        """Where a benchmark needs ranks and nobody has started any."""
        return not context.ranks.started_world_size and needs_ranks(context, cases)

    def start(
        self, size: int, invitation: Invitation, call: RankCommand
    ) -> Iterator[tuple[int, RankProcess]]:
        """Start the ranks."""
        from gpubench_plugin.launchers import processes

        user = processes.user_environment(os.environ)
        for rank, variables in enumerate(processes.local_ranks(size, invitation)):
            log = call.log(rank, size)
            yield rank, processes.ChildRank(call, {**user, **variables}, log)


class FreshProcess(Gang):
    """A gang of one rank that runs any test of the session, adopted ones too."""

    runs_all: ClassVar[bool] = True
