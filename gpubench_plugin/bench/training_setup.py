"""What a training or inference is built from: its set-up, its model and data, and its checks.

Only benchmarks with a model import this module.
"""

from __future__ import annotations

from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from gpubench_plugin.bench.probing import file_name
from gpubench_plugin.bench.refusals import check_refusal
from gpubench_plugin.bench.subjects import case_of, subjects_of
from gpubench_plugin.core import catalog
from gpubench_plugin.core.errors import Unsupported, UsageProblem
from gpubench_plugin.launchers.context import context_of
from gpubench_plugin.training import seeding
from gpubench_plugin.training.check import recording, steps_of_check
from gpubench_plugin.training.evaluation import Evaluator, check_evaluation
from gpubench_plugin.training.inference import Inference
from gpubench_plugin.training.model import build_model
from gpubench_plugin.training.reference import Fp32Reference
from gpubench_plugin.training.timed_collective import free_bytes
from gpubench_plugin.training.trainer import Trainer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pytest
    from torch import nn

    from gpubench_plugin.config.sections import Configuration
    from gpubench_plugin.measure.protocols import UntimedCheck
    from gpubench_plugin.precision.base import Precision
    from gpubench_plugin.ranks.process_group import ProcessGroup
    from gpubench_plugin.training.checkpoint import Checkpoints
    from gpubench_plugin.training.convergence import ReproducibleTraining
    from gpubench_plugin.training.data.base import DataSource
    from gpubench_plugin.training.parallelism.base import Parallelism
    from gpubench_plugin.workloads.base import Workload


@dataclass(frozen=True, kw_only=True)
class TrainingSetup:
    """Configuration of a benchmark with its components, resolved once for all fixtures."""

    configuration: Configuration[Any]
    workload: Workload[Any]
    precision: Precision
    group: ProcessGroup
    parallelism: Parallelism

    @property
    def ranks_per_batch(self) -> int:
        """Number of ranks that share a batch."""
        return self.group.world.size if self.parallelism.shares_batch else 1

    @classmethod
    def of(
        cls,
        configuration: Configuration[Any],
        *,
        workload: Workload[Any],
        precision: Precision,
        group: ProcessGroup,
    ) -> TrainingSetup:
        """Set up the components of `configuration`, with its parallelism.

        Raises:
            Unsupported: the parallelism cannot do the precision or the training.
        """
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
            precision=precision,
            group=group,
            parallelism=parallelism,
        )

    def module(self, *, is_eager: bool = False) -> nn.Module:
        """Build the model as it will be trained: seeded, on the device, compiled if configured.

        Not compiled if `is_eager`.
        """
        return build_model(
            self.workload,
            seed=self.configuration.experiment.seed,
            device=self.group.device,
            precision=self.precision,
            is_eager=is_eager,
            default_scope=self.parallelism.default_scope,
            compiled=self.parallelism.compiled,
            wrap=self.parallelism.wrap,
        )

    def source(self) -> DataSource:
        """Open this rank's data source; the caller closes it."""
        configuration, world = self.configuration, self.group.world
        sharing = self.ranks_per_batch
        source: type[DataSource] = catalog.load(
            "data", configuration.data.source, key="data.source"
        )
        return source(
            self.workload,
            section=configuration.data,
            batch_size=configuration.training.samples * sharing,
            device=self.group.device,
            world_size=world.size // sharing,
            rank=world.rank // sharing,
            seed=configuration.experiment.seed,
            convert=self.precision.convert_batch,
        )

    def trainer(self, module: nn.Module, source: DataSource, **more: Any) -> Trainer:
        """Trainer of `module` on the batches of `source`, with `more` arguments of its class."""
        return Trainer(
            **self._runs(module, source),
            training=self.configuration.training,
            precision_section=self.configuration.precision,
            no_sync=partial(self.parallelism.no_sync, module),
            agreement=self.group.agreement,
            global_norm=self.parallelism.gradient_norm,
            ranks_per_batch=self.ranks_per_batch,
            checks=self.configuration.measure.check is not False,
            **more,
        )

    def inference(self, module: nn.Module, source: DataSource) -> Inference:
        """Inference of `module` on the batches of `source`."""
        return Inference(
            **self._runs(module, source),
            ranks_per_batch=self.ranks_per_batch,
            checks=self.configuration.measure.check is not False,
        )

    def evaluator(self, module: nn.Module, source: DataSource) -> Evaluator:
        """Evaluator of `module` on held-out samples of `source`."""
        if self.parallelism.passes(module, self.precision) is not None:
            raise Unsupported(
                f"{self.parallelism.name}: no rank holds the whole model, which evaluation "
                "needs; use another distributed.parallelism"
            )
        return Evaluator(**self._runs(module, source), agreement=self.group.agreement)

    def _runs(self, module: nn.Module, source: DataSource) -> dict[str, Any]:
        """Arguments of whatever runs `module` on the batches of `source`."""
        return {
            "module": module,
            "workload": self.workload,
            "data": source,
            "precision": self.precision,
            "device": self.group.device,
        }

    def course(self, module: nn.Module, source: DataSource) -> ReproducibleTraining:
        """Training of `module` to a target, which can start again."""
        from gpubench_plugin.training.convergence import ReproducibleTraining

        return ReproducibleTraining(
            evaluator=self.evaluator(module, source),
            build_trainer=partial(self.trainer, module, source),
            seed=self.configuration.experiment.seed,
        )

    @contextmanager
    def fp32_course(self) -> Iterator[ReproducibleTraining]:
        """Training in fp32 that is otherwise the same."""
        plain = self.in_fp32()
        with plain.precision.switches(), closing(plain.source()) as source:
            yield plain.course(plain.module(is_eager=True), source)

    def in_fp32(self) -> TrainingSetup:
        """The same in fp32, without the 16-bit gather and reduce dtypes of the parallelism."""
        types = {"fsdp_param_dtype": None, "fsdp_reduce_dtype": None}
        distributed = self.configuration.distributed.model_copy(update=types)
        return TrainingSetup.of(
            self.configuration.model_copy(update={"distributed": distributed}),
            workload=self.workload,
            precision=catalog.load("precision", "fp32")(),
            group=self.group,
        )

    @property
    def seeds(self) -> UntimedCheck:
        """Record of the seeds."""
        seed, world_size = self.configuration.experiment.seed, self.group.world.size
        return recording(seeds=seeding.seeds_of(seed, world_size=world_size))


def checked_trainer(
    request: pytest.FixtureRequest, setup: TrainingSetup, module: nn.Module, source: DataSource
) -> Trainer:
    """Trainer of `module` on `source`, registered with all untimed checks of the benchmark."""
    setup, parallelism = scheduled(setup, source), setup.parallelism
    training = setup.configuration.training
    evaluator = setup.evaluator(module, source) if training.evaluate else None
    trainer = setup.trainer(
        module,
        source,
        differs_from_one_process=parallelism.differs_from_one_process(module.train()),
        passes=parallelism.passes(module, setup.precision),
        reference=reference_of(setup),
        evaluate=None if evaluator is None else evaluator.evaluate,
    )
    before: list[UntimedCheck] = []
    if training.resume is not None:
        from gpubench_plugin.training.checkpoint import resume_training

        checkpoints = checkpoints_of(request, "training.resume", setup)
        path = request.config.rootpath / training.resume
        before.append(partial(resume_training, checkpoints, path, trainer))
    after: list[UntimedCheck] = [setup.seeds]
    evaluate = None
    if evaluator is not None:
        evaluate = cache(evaluator.evaluate)  # since the record and the checkpoint need it
        after.append(partial(check_evaluation, evaluate))
    if training.checkpoint:
        from gpubench_plugin.training.checkpoint import write_checkpoint

        def metrics() -> Mapping[str, float]:
            (loss,) = setup.group.agreement.mean([float(trainer.last_loss)])
            return {"loss": loss, **(evaluate().metrics if evaluate is not None else {})}

        checkpoints = checkpoints_of(request, "training.checkpoint", setup)
        best_metric = "loss" if evaluate is None else "test_loss"
        after.append(partial(write_checkpoint, checkpoints, trainer, metrics, best_metric))
    return subjects_of(request).add(trainer, before=before, after=after)


def scheduled(setup: TrainingSetup, source: DataSource) -> TrainingSetup:
    """Set-up whose schedule, unless its length is configured, ends with the epochs of `source`."""
    training = setup.configuration.training
    if training.epochs is None or training.schedule_steps is not None:
        return setup
    steps = max(1, steps_of_check(training, source))
    update = {"training": training.model_copy(update={"schedule_steps": steps})}
    return replace(setup, configuration=setup.configuration.model_copy(update=update))


def reference_of(setup: TrainingSetup) -> Fp32Reference | None:
    """Reference for the first training steps, if any."""
    configuration, precision, group = setup.configuration, setup.precision, setup.group
    training, measure = configuration.training, configuration.measure
    if reason := check_refusal(configuration):  # of gpubench.train, which nothing refuses before
        raise UsageProblem(reason)
    if training.resume is not None or measure.check is False:
        return None
    is_full = configuration.experiment.preset == "full"
    reduced_in = configuration.distributed.fsdp_reduce_dtype
    host_bytes = None
    if is_full and group.device.type == "cpu":
        host_bytes = partial(free_bytes, group.device, local_ranks=group.world.local_size)
    return Fp32Reference(
        workload=setup.workload,
        training=training,
        measure=measure,
        precision=precision.name,
        compute_dtypes=[precision.compute_dtype, *([reduced_in] if reduced_in else [])],
        seed=configuration.experiment.seed,
        device=group.device,
        agreement=group.agreement,
        averaging=setup.parallelism.name != "none",
        shares_batch=setup.parallelism.shares_batch,
        # A full preset compares one step by default.
        steps=1 if is_full and measure.check is None else measure.check_steps,
        host_bytes=host_bytes,
    )


def checkpoints_of(request: pytest.FixtureRequest, key: str, setup: TrainingSetup) -> Checkpoints:
    """Checkpoint store of this benchmark, in the run directory.

    Raises:
        Unsupported: the model is sharded over the ranks.
    """
    from gpubench_plugin.training.checkpoint import Checkpoints

    name, group = setup.parallelism.name, setup.group
    if name != "ddp" and group.world.size > 1:
        raise Unsupported(
            f"{key}: under distributed.parallelism={name} no rank holds the whole model, but "
            "a checkpoint is one file; use ddp"
        )
    configuration, training = setup.configuration, setup.configuration.training
    settings = {
        "model.name": configuration.model.name,
        "precision.name": configuration.precision.name,
        "training.optimizer": training.optimizer,
        "training.scheduler": training.scheduler,
        # The next batch depends on these.
        "experiment.seed": configuration.experiment.seed,
        "data.source": configuration.data.source,
        "training.batch_size": training.samples,
    }
    run = context_of(request.config).run  # rank zero's
    return Checkpoints(
        None if run is None else run.checkpoints / file_name(case_of(request)),
        settings={key: str(value) for key, value in settings.items()},
        group=group,
    )
