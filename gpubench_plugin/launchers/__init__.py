"""Launchers: in this process, in a gang of worker processes, or under torchrun."""

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
    from gpubench_plugin.launchers.deadlines import Deadline, Timeouts
    from gpubench_plugin.launchers.in_process import (
        InProcessLauncher,
        LauncherPlugin,
        has_debugger,
    )
    from gpubench_plugin.launchers.outcome import JointVerdict, RankOutcome, judge, ranks_text
    from gpubench_plugin.launchers.output import GANG, DeferredStream, LogForwarder, is_secondary
    from gpubench_plugin.launchers.report_payload import Notes
    from gpubench_plugin.launchers.scratch import (
        TOKEN,
        ScratchFolder,
        leftovers,
        private_folder,
    )
    from gpubench_plugin.launchers.signals import (
        ExitRequest,
        ExitWatcher,
        SignalInterrupt,
        exit_on_signals,
        signals_deferred,
        signals_ignored,
    )
    from gpubench_plugin.launchers.user_frames import message_with_line
    from gpubench_plugin.launchers.watchdog import Watchdog

__getattr__ = lazy_names(__name__)
