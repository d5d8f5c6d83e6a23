"""What the model of a benchmark is built from and runs on, resolved once for all fixtures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import torch

    from gpubench_plugin.config import Configuration
    from gpubench_plugin.distributed import ProcessGroup
    from gpubench_plugin.distributed.parallelism import Parallelism
    from gpubench_plugin.precision import Precision
    from gpubench_plugin.workloads import Workload


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The configuration of a benchmark and what it names, as the fixtures of the same names."""

    configuration: Configuration[Any]
    workload: Workload[Any]
    device: torch.device
    precision: Precision
    group: ProcessGroup
    parallelism: Parallelism

    @property
    def ranks_per_batch(self) -> int:
        """Ranks that work on one and the same batch."""
        return self.group.world.size if self.parallelism.shares_batch else 1

    @property
    def global_norm(self) -> Callable[[Iterable[torch.nn.Parameter]], float] | None:
        """The norm of gradients that are spread over the ranks; None of a single rank."""
        return self.parallelism.gradient_norm if self.group.world.size > 1 else None
