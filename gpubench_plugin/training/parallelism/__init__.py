"""Parallelism strategies, one per module, selected by the configuration."""

from typing import TYPE_CHECKING

from gpubench_plugin.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.training.parallelism.base import Parallelism

__getattr__ = lazy_names(__name__)
