"""Gangs: ranks on this host that the pytest session starts, and replaces after a failure."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, ClassVar

from gpubench_plugin.launchers.ways.base import Launcher

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
        """Where nobody has started ranks, and a benchmark needs several or its own processes.

        Then it runs all: what one process measured is compared with nothing but other processes.
        """
        is_asked = context.settings.isolate or context.settings.launches > 1
        are_needed = any(is_asked or (c.world_size > 1 and c.skip_reason() is None) for c in cases)
        return are_needed and not context.ranks.started_world_size

    def start(
        self, size: int, invitation: Invitation, call: RankCommand
    ) -> Iterator[tuple[int, RankProcess]]:
        """Start the ranks."""
        from gpubench_plugin.launchers import processes

        user = processes.user_environment(os.environ)
        for rank, variables in enumerate(processes.local_ranks(size, invitation)):
            yield rank, processes.ChildRank(call, {**user, **variables}, call.log(rank, size))


class FreshProcess(Gang):
    """A gang of one rank that runs any test of the session, adopted ones too."""

    runs_all: ClassVar[bool] = True
