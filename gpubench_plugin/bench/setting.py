"""What the model of a benchmark is built from and runs on, resolved once for all fixtures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.bench.fixtures import case_of

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


@pytest.fixture
def workload(request: pytest.FixtureRequest) -> Workload[Any]:
    """The workload that the configuration names, as built by its module in ``workloads/``."""
    from gpubench_plugin import catalog
    from gpubench_plugin.errors import UsageProblem

    section = case_of(request).configuration.model
    if section.name is None:
        raise UsageProblem(
            f"{request.node.nodeid}: its configuration names no workload; "
            "give the mark gpubench a config= whose model.name is set"
        )
    built: Workload[Any] = catalog.load("workloads", section.name)(section)
    return built


@pytest.fixture
def _gpubench_setting(
    gpubench_config: Configuration[Any],
    workload: Workload[Any],
    torch_device: torch.device,
    precision: Precision,
    process_group: ProcessGroup,
) -> Setting:
    """The setting, whose parallelism is what ``distributed.parallelism`` names."""
    from gpubench_plugin import catalog
    from gpubench_plugin.errors import Unsupported

    section = gpubench_config.distributed
    name = section.parallelism
    if name == "auto":
        name = "ddp" if process_group.world.size > 1 else "none"
    parallelism: Parallelism = catalog.load("parallelism", name)(process_group, section)
    if reason := parallelism.unsupported(precision.compute_dtype):
        raise Unsupported(f"{name}: {reason}")
    parallelism.take(workload, gpubench_config.training)
    return Setting(
        configuration=gpubench_config,
        workload=workload,
        device=torch_device,
        precision=precision,
        group=process_group,
        parallelism=parallelism,
    )
