"""Workloads, one per module, subclasses of `base.Workload`."""

from typing import TYPE_CHECKING

from gpubench_plugin.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.workloads._language import CachedModel, CausalLanguageModel
    from gpubench_plugin.workloads._own.batch import StatedBatch
    from gpubench_plugin.workloads._own.loss import StatedLoss
    from gpubench_plugin.workloads._own.model import StatedModel
    from gpubench_plugin.workloads._own.workload import OwnWorkload
    from gpubench_plugin.workloads.base import Batch, BlockPosition, Stages, Workload, blocks_of
    from gpubench_plugin.workloads.llama import decoder_stages

__getattr__ = lazy_names(__name__)
