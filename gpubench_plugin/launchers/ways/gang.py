"""Gangs: ranks on this host that the pytest session starts, and replaces after a failure."""

from __future__ import annotations

import os
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

        user = processes.user_environment(os.environ)
        with processes.all_or_none() as started:
            for rank, variables in enumerate(processes.local_ranks(size, invitation)):
                log = call.log(rank, size)
                started[rank] = processes.ChildRank(call, {**user, **variables}, log)
        return started
