"""Custom mixture-of-experts layer, and a small model using it."""

from typing import TYPE_CHECKING

from gpubench_plugin.core.lazy_names import lazy_names
from gpubench_plugin.workloads.moe.workload import MoE

if TYPE_CHECKING:
    from gpubench_plugin.workloads.moe.construction import Construction
    from gpubench_plugin.workloads.moe.experts import CachedExperts, offload
    from gpubench_plugin.workloads.moe.groups import Axis, ParallelGroups, sizes
    from gpubench_plugin.workloads.moe.layer import PHASES, ROUTER, GraphedRouter
    from gpubench_plugin.workloads.moe.measured import MoESubject, phase_times
    from gpubench_plugin.workloads.moe.routing import Router, capacity

__getattr__ = lazy_names(__name__)
