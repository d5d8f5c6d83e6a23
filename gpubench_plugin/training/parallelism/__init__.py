"""Parallelism strategies, one per module, selected by the configuration."""

from typing import TYPE_CHECKING

from gpubench_plugin.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.training.parallelism._stages import PipelinePasses
    from gpubench_plugin.training.parallelism.base import (
        Parallelism,
        gradient_norm,
        split_dependent_layers,
    )

__getattr__ = lazy_names(__name__)
