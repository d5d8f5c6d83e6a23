"""A launcher of another distribution: ranks below a shell, in an environment of their own."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from gpubench_plugin.launchers import processes
from gpubench_plugin.launchers.ways.base import Launcher

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpubench_plugin.config.case import Case
    from gpubench_plugin.launchers.context import RunContext
    from gpubench_plugin.launchers.link import Invitation
    from gpubench_plugin.launchers.processes import RankCommand, RankProcess

KEPT = ("PATH", "HOME", "TMPDIR", "PYTHONPATH", "TORCHINDUCTOR_CACHE_DIR")
WRAPPER = """
touch "toy-$RANK"
"$@"
code=$?
if [ $code -gt 128 ]; then kill -$((code - 128)) $$; fi
exit $code
"""
"""A wrapper should end as the rank did."""


class Toy(Launcher):
    """Starts each rank below a shell, with few variables of the user's."""

    @classmethod
    def claims(cls, context: RunContext, cases: Sequence[Case]) -> bool:
        """Where a benchmark needs ranks and nobody has started any."""
        is_started = context.ranks.started_world_size
        return not is_started and any(case.world_size > 1 for case in cases)

    def start(
        self, size: int, invitation: Invitation, call: RankCommand
    ) -> Iterator[tuple[int, RankProcess]]:
        """Start the wrappers."""
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        wrapped = replace(call, command=["sh", "-c", WRAPPER, "toy", *call.command])
        for rank, variables in enumerate(processes.local_ranks(size, invitation)):
            log = call.log(rank, size)
            yield rank, processes.ChildRank(wrapped, {**kept, **variables}, log)
