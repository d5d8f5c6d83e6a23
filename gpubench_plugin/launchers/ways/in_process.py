"""Benchmarks in the process of the pytest session."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gpubench_plugin.launchers.ways.base import Launcher

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

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


class InProcess(Launcher):
    """Runs benchmarks of one rank in this process, where a debugger works."""

    has_ranks: ClassVar[bool] = False

    @classmethod
    def claims(cls, context: RunContext, cases: Sequence[Case]) -> bool:
        """Where no benchmark needs ranks."""
        return not (cases and context.ranks.started_world_size) and not needs_ranks(context, cases)

    def start(
        self, size: int, invitation: Invitation, call: RankCommand
    ) -> Iterator[tuple[int, RankProcess]]:
        """There are none."""
        yield from ()
