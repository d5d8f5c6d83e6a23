"""The three ways to run: in this process, in a gang of our own, under torchrun."""

from typing import TYPE_CHECKING

from gpubench_plugin import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.launchers.context import (
        CONTEXT,
        STATE,
        BenchmarkState,
        RunContext,
        case_on_ranks,
        context_of,
        state_of,
        update_context,
    )
    from gpubench_plugin.launchers.deadlines import Deadline, Patience
    from gpubench_plugin.launchers.in_process import (
        InProcess,
        RunsBenchmarks,
        has_debugger,
    )
    from gpubench_plugin.launchers.outcome import Ending, Verdict, judge, named
    from gpubench_plugin.launchers.output import GANG, Output, Valve, is_secondary
    from gpubench_plugin.launchers.report_payload import Notes
    from gpubench_plugin.launchers.scratch import (
        TOKEN,
        ScratchFolder,
        abandoned,
        private_folder,
    )
    from gpubench_plugin.launchers.signals import (
        Interruption,
        Notice,
        Termination,
        deferred,
        ended_by_signals,
        unheard,
    )
    from gpubench_plugin.launchers.watchdog import Watchdog

__getattr__ = lazy_names(__name__)
