"""Parallelism strategies, one per module, selected by the configuration."""

from typing import TYPE_CHECKING

from gpubench_plugin import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.distributed.parallelism._stages import PipelinePasses
    from gpubench_plugin.distributed.parallelism.base import (
        Parallelism,
        gradient_norm,
        split_dependent_layers,
    )

__getattr__ = lazy_names(__name__)
