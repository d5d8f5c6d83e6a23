"""Benchmarks in the process of the pytest session."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gpubench_plugin.launchers.ways.base import Launcher

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpubench_plugin.config.case import Case
    from gpubench_plugin.launchers.context import RunContext
    from gpubench_plugin.launchers.link import Invitation
    from gpubench_plugin.launchers.processes import RankCommand, RankProcess


class InProcess(Launcher):
    """Runs benchmarks of one rank in this process, where a debugger works."""

    has_ranks: ClassVar[bool] = False

    @classmethod
    def claims(cls, context: RunContext, cases: Sequence[Case]) -> bool:
        """Where no benchmark needs ranks."""
        from gpubench_plugin.launchers.ways.gang import needs_ranks

        return not (cases and context.ranks.started_world_size) and not needs_ranks(context, cases)

    def start(
        self, size: int, invitation: Invitation, call: RankCommand
    ) -> Mapping[int, RankProcess]:
        """There are none."""
        return {}
