"""Fixtures for training to a target, and for what exchanging gradients costs a training step."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.bench.checks import observe_with_checkpoints, seeds_of
from gpubench_plugin.bench.fixtures import parts_of
from gpubench_plugin.bench.training import evaluator_of, source_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from gpubench_plugin.config import Configuration, TrainingSection
    from gpubench_plugin.distributed import ProcessGroup
    from gpubench_plugin.distributed.parallelism import Parallelism
    from gpubench_plugin.precision import Precision
    from gpubench_plugin.training import Convergence, Course, ExposedCommunication, Trainer
    from gpubench_plugin.training.data import DataSource
    from gpubench_plugin.workloads import Workload


def in_fp32(
    parallelism: Parallelism, workload: Workload[Any], training: TrainingSection
) -> Parallelism:
    """The same `parallelism` without the 16-bit types that it may gather and reduce in."""
    types = {"fsdp_param_dtype": None, "fsdp_reduce_dtype": None}
    made = type(parallelism)(parallelism.group, parallelism.section.model_copy(update=types))
    made.take(workload, training)
    return made


@pytest.fixture
def convergence(
    request: pytest.FixtureRequest,
    gpubench_config: Configuration[Any],
    workload: Workload[Any],
    model: torch.nn.Module,
    data: DataSource,
    precision: Precision,
    torch_device: torch.device,
    process_group: ProcessGroup,
    _gpubench_parallelism: Parallelism,
) -> Convergence:
    """A training to a target: ``gpubench(convergence, setup=convergence.restart)``.

    Before it is measured it is trained until ``training.target_accuracy`` or
    ``training.target_loss`` is reached, and its precision is compared with fp32.
    """
    from gpubench_plugin import catalog
    from gpubench_plugin.training import EAGER, Convergence, Course, Trainer, build_model

    reduced = gpubench_config.distributed.fsdp_reduce_dtype not in {None, "fp32"}
    several = process_group.world.size > 1
    sharing = process_group.world.size if _gpubench_parallelism.shares_batch else 1

    def course(module: torch.nn.Module, source: DataSource, chosen: Precision) -> Course:
        return Course(
            module=module,
            data=source,
            evaluator=evaluator_of(
                module,
                workload,
                source,
                chosen,
                torch_device,
                process_group,
                _gpubench_parallelism,
            ),
            build_trainer=partial(
                Trainer,
                module=module,
                workload=workload,
                data=source,
                precision=chosen,
                training=gpubench_config.training,
                precision_section=gpubench_config.precision,
                device=torch_device,
                no_sync=partial(_gpubench_parallelism.no_sync, module),
                agreement=process_group.agreement,
                global_norm=_gpubench_parallelism.gradient_norm if several else None,
                ranks_per_batch=sharing,
            ),
            seed=gpubench_config.experiment.seed,
        )

    @contextmanager
    def reference() -> Iterator[Course]:
        fp32 = catalog.load("precision", "fp32")()
        with fp32.switches():
            module = build_model(
                workload,
                section=gpubench_config.model.model_copy(update=EAGER),
                seed=gpubench_config.experiment.seed,
                device=torch_device,
                precision=fp32,
                wrap=in_fp32(_gpubench_parallelism, workload, gpubench_config.training).wrap,
            )
            source = source_of(
                gpubench_config, workload, torch_device, fp32, process_group, _gpubench_parallelism
            )
            try:
                yield course(module, source, fp32)
            finally:
                source.close()

    made = Convergence(
        course=course(model, data, precision),
        workload=workload,
        data=data,
        training=gpubench_config.training,
        agreement=process_group.agreement,
        reference=None if precision.name == "fp32" and not reduced else reference,
    )
    observe_with_checkpoints(request, made, process_group, _gpubench_parallelism)
    parts_of(request).add(made, after=[seeds_of(gpubench_config, process_group)])
    return made


@pytest.fixture
def exposed_communication(
    request: pytest.FixtureRequest,
    trainer: Trainer,
    torch_device: torch.device,
    process_group: ProcessGroup,
    _gpubench_parallelism: Parallelism,
) -> ExposedCommunication:
    """Adds ``exposed_communication_s`` to a benchmark of the `trainer`: ask for it, no more."""
    from gpubench_plugin.errors import Unsupported
    from gpubench_plugin.training import ExposedCommunication

    name = _gpubench_parallelism.name
    if name != "ddp":
        raise Unsupported(
            f"exposed_communication: under {name} a step cannot be run without its exchange; "
            "use distributed.parallelism=ddp"
        )
    made = ExposedCommunication(
        exchanging=trainer.step,
        alone=trainer.step_alone,
        meet=process_group.agreement.barrier,
        device=torch_device,
    )
    parts_of(request).add_facts(trainer, made.facts)
    return made
