"""The way to run a session's benchmarks: in this process, in gangs, or under torchrun."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubench_plugin.errors import UsageProblem
from gpubench_plugin.launchers.context import RunContext, case_on_ranks, context_of
from gpubench_plugin.launchers.in_process import InProcess, RunsBenchmarks, has_debugger

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest

    from gpubench_plugin.config import Case
    from gpubench_plugin.launchers.output import Valve


def choose_launcher(
    session: pytest.Session, benchmarks: Iterable[pytest.Item], output: Valve | None
) -> RunsBenchmarks:
    """The launcher of the `benchmarks`, to be started and registered; of no rank of a gang.

    `output` holds back what a rank other than zero prints.

    Raises:
        UsageProblem: a flag does not go with this way to run.
    """
    context = context_of(session.config)
    cases = list(filter(None, map(case_on_ranks, benchmarks)))
    if context.ranks.started:
        _refuse_flags_of_gangs(context)
        if cases:
            from gpubench_plugin.launchers.torchrun import TorchrunRank

            return TorchrunRank(session, output)
        if output is not None:  # nothing that the ranks run together
            output.release()
    elif cases and _needs_gang(context, cases):
        if has_debugger(session.config):
            raise UsageProblem(
                "--pdb: a debugger needs the terminal to itself, and a gang has several ranks; "
                "debug one rank in this process with --world-size=1"
            )
        from gpubench_plugin.launchers.gang import GangController

        return GangController(session.config)
    return InProcess(session.config)


def _needs_gang(context: RunContext, cases: Iterable[Case]) -> bool:
    """Whether any benchmark runs on several ranks, or is to have processes of its own.

    Then all do: what one process measured is compared with nothing but other processes.
    """
    sizes = [case.world_size for case in cases if case.refusal() is None]
    settings = context.settings
    return settings.isolate or settings.launches > 1 or max(sizes, default=1) > 1


def _refuse_flags_of_gangs(context: RunContext) -> None:
    settings, size = context.settings, context.ranks.started
    flags = {
        "--world-size": settings.world_sizes,
        "--launches": settings.launches > 1,
        "--isolate": settings.isolate,
    }
    for flag, given in flags.items():
        if given:
            raise UsageProblem(
                f"{flag}: pytest starts the ranks itself then, but torchrun has started {size} "
                f"(WORLD_SIZE={size}); leave the flag out, or run pytest without torchrun"
            )
