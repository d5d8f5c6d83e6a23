"""Launcher base class: how the processes of the ranks come to be.

What the ranks do, and what becomes of a benchmark on them, is the same whoever started them
(:mod:`gpubench_plugin.launchers.controller`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from gpubench_plugin.core import catalog

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpubench_plugin.config.case import Case
    from gpubench_plugin.launchers.context import RunContext
    from gpubench_plugin.launchers.link import Invitation
    from gpubench_plugin.launchers.processes import RankCommand, RankProcess


class Launcher(ABC):
    """A way to start ranks, which then join a controller by its invitation.

    Add one by a module in this folder, or by an entry point of the group ``gpubench.launchers``,
    whose launchers are asked first. A launcher lives as long as the session; `start` is called
    again for another world size and, if it `replaces_ranks`, after a rank is lost.

    A rank exits when its connection ends. It may run below a wrapper (a profiler, a container),
    which should then end as the rank did: with its exit code, or by its signal.
    """

    replaces_ranks: ClassVar[bool] = True
    """Whether ranks can be started again, after a failure or for another world size."""

    runs_all: ClassVar[bool] = False
    """Whether tests that are no benchmarks run on the ranks, too, and not in this process."""

    @classmethod
    @abstractmethod
    def claims(cls, context: RunContext, cases: Sequence[Case]) -> bool:
        """Whether it runs the benchmarks `cases` of this session.

        Raises:
            UsageProblem: it would, but an option does not go with it.
        """

    def host(self) -> str | None:
        """Address to listen on beside the unix socket, for ranks on other hosts; None if none."""
        return None

    @abstractmethod
    def start(
        self, size: int, invitation: Invitation, call: RankCommand
    ) -> Iterator[tuple[int, RankProcess]]:
        """Start `size` ranks; yields each process that this one is the parent of, with its rank.

        Each runs the command in its folder, with the variables of
        :func:`~gpubench_plugin.launchers.processes.local_ranks`, or at least torchrun's and those
        of the invitation. That has a secret: it belongs into no command line and no log.

        Raises:
            OSError: a process could not be started.
        """


BASE = Launcher


def launcher_of(context: RunContext, cases: Sequence[Case]) -> Launcher | None:
    """The launcher that claims the benchmarks `cases`; those of other distributions come first.

    None where they run in this process.

    Raises:
        UsageProblem: an option does not go with it.
    """
    kinds: list[type[Launcher]] = [
        catalog.load("launchers", name) for name in catalog.choices("launchers")
    ]
    kinds.sort(key=lambda kind: kind.__module__.startswith("gpubench_plugin."))
    return next((kind() for kind in kinds if kind.claims(context, cases)), None)
