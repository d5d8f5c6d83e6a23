"""Set-up of a training or inference: what its model, data and trainer are built from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import torch

    from gpubench_plugin.config.sections import Configuration
    from gpubench_plugin.precision.base import Precision
    from gpubench_plugin.ranks.process_group import ProcessGroup
    from gpubench_plugin.training.data.base import DataSource
    from gpubench_plugin.training.evaluation import Evaluator
    from gpubench_plugin.training.parallelism.base import Parallelism
    from gpubench_plugin.training.trainer import Trainer
    from gpubench_plugin.workloads.base import Workload


@dataclass(frozen=True, kw_only=True)
class TrainingSetup:
    """Configuration of a benchmark with its components, resolved once for all fixtures."""

    configuration: Configuration[Any]
    workload: Workload[Any]
    device: torch.device
    precision: Precision
    group: ProcessGroup
    parallelism: Parallelism

    @property
    def ranks_per_batch(self) -> int:
        """Number of ranks that share a batch."""
        return self.group.world.size if self.parallelism.shares_batch else 1

    @property
    def global_norm(self) -> Callable[[Iterable[torch.nn.Parameter]], float] | None:
        """Norm of gradients that are spread over the ranks; None for a single rank."""
        return self.parallelism.gradient_norm if self.group.world.size > 1 else None

    @classmethod
    def of(
        cls,
        configuration: Configuration[Any],
        *,
        workload: Workload[Any],
        device: torch.device,
        precision: Precision,
        group: ProcessGroup,
    ) -> TrainingSetup:
        """Set up the components of `configuration`, with its parallelism.

        Raises:
            Unsupported: the parallelism cannot do the precision or the training.
        """
        from gpubench_plugin.core import catalog
        from gpubench_plugin.core.errors import Unsupported

        section = configuration.distributed
        name = section.parallelism
        if name == "auto":
            name = "ddp" if group.world.size > 1 else "none"
        parallelism: Parallelism = catalog.load("parallelism", name)(group, section)
        if reason := parallelism.unsupported(precision.compute_dtype):
            raise Unsupported(f"{name}: {reason}")
        parallelism.configure(workload, configuration.training)
        return cls(
            configuration=configuration,
            workload=workload,
            device=device,
            precision=precision,
            group=group,
            parallelism=parallelism,
        )

    def module(self) -> torch.nn.Module:
        """Build the model."""
        from gpubench_plugin.training.model import build_model

        return build_model(
            self.workload,
            section=self.workload.section,
            seed=self.configuration.experiment.seed,
            device=self.device,
            precision=self.precision,
            default_scope=self.parallelism.default_scope,
            compiled=self.parallelism.compiled,
            wrap=self.parallelism.wrap,
        )

    def source(self) -> DataSource:
        """Open this rank's data source; the caller closes it."""
        from gpubench_plugin.core import catalog

        configuration, world = self.configuration, self.group.world
        sharing = self.ranks_per_batch
        source: type[DataSource] = catalog.load(
            "data", configuration.data.source, key="data.source"
        )
        return source.from_section(
            configuration.data,
            self.workload,
            batch_size=configuration.training.samples * sharing,
            device=self.device,
            world_size=world.size // sharing,
            rank=world.rank // sharing,
            seed=configuration.experiment.seed,
            convert=self.precision.convert_batch,
        )

    def trainer(self, module: torch.nn.Module, source: DataSource, **more: Any) -> Trainer:
        """Trainer of `module` on the batches of `source`, with `more` arguments of its class."""
        from gpubench_plugin.training.trainer import Trainer

        return Trainer(
            module=module,
            workload=self.workload,
            data=source,
            precision=self.precision,
            training=self.configuration.training,
            precision_section=self.configuration.precision,
            device=self.device,
            no_sync=partial(self.parallelism.no_sync, module),
            agreement=self.group.agreement,
            global_norm=self.global_norm,
            ranks_per_batch=self.ranks_per_batch,
            **more,
        )

    def evaluator(self, module: torch.nn.Module, source: DataSource) -> Evaluator:
        """Evaluator of `module` on held-out samples of `source`."""
        from gpubench_plugin.core.errors import Unsupported
        from gpubench_plugin.training.evaluation import Evaluator

        if self.parallelism.passes(module, self.precision) is not None:
            raise Unsupported(
                f"{self.parallelism.name}: no rank holds the whole model, which evaluation "
                "needs; use another distributed.parallelism"
            )
        return Evaluator(
            module=module,
            workload=self.workload,
            data=source,
            precision=self.precision,
            device=self.device,
            agreement=self.group.agreement,
        )


def drawn_section(configuration: Configuration[Any]) -> Any:
    """Section ``model`` with the device that draws the weights."""
    draws_on_cpu = {"init_device": "cpu"} if configuration.init_device_type == "cpu" else {}
    return configuration.model.model_copy(update=draws_on_cpu)
