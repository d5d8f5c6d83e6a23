"""How the ranks share one model: one module per parallelism, chosen in the configuration."""

from typing import TYPE_CHECKING

from gpubench_plugin import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.distributed.parallelism._stages import PipelinePasses
    from gpubench_plugin.distributed.parallelism.base import (
        Parallelism,
        drawn_or_normalised_per_rank,
        gradient_norm,
    )

__getattr__ = lazy_names(__name__)
