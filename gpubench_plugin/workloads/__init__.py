"""Workloads, one per module, subclasses of `base.Workload`."""

from typing import TYPE_CHECKING

from gpubench_plugin.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.workloads.base import Batch, Stages, Workload

__getattr__ = lazy_names(__name__)
