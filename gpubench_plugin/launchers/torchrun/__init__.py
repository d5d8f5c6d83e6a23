"""torchrun sessions: one per rank, in lockstep."""

from typing import TYPE_CHECKING

from gpubench_plugin import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.launchers.torchrun.paths import benchmark_paths
    from gpubench_plugin.launchers.torchrun.plugin import TorchrunRank
    from gpubench_plugin.launchers.torchrun.store import OutcomeExchange, wait_until

__getattr__ = lazy_names(__name__)
