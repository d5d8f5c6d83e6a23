"""A mixture-of-experts layer of our own, and a small model made of it."""

from typing import TYPE_CHECKING

from gpubench_plugin import lazy_names
from gpubench_plugin.workloads.moe.workload import MoE

if TYPE_CHECKING:
    from gpubench_plugin.workloads.moe.construction import Construction
    from gpubench_plugin.workloads.moe.groups import Axis, ParallelGroups, sizes
    from gpubench_plugin.workloads.moe.layer import PHASES, ROUTER, Replayed
    from gpubench_plugin.workloads.moe.measured import MeasuredLayer, phase_times
    from gpubench_plugin.workloads.moe.pinned_cache import ExpertCache, offloaded
    from gpubench_plugin.workloads.moe.routing import Router, capacity

__getattr__ = lazy_names(__name__)
