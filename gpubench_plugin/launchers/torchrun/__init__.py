"""Sessions that torchrun starts: one per rank, in step, which end together or fail together."""

from typing import TYPE_CHECKING

from gpubench_plugin import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.launchers.torchrun.plugin import TorchrunRank
    from gpubench_plugin.launchers.torchrun.store import Assembly, wait_until

__getattr__ = lazy_names(__name__)
