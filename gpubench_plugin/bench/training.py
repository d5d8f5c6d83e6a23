"""Training fixtures: workload, model, data, trainer, inference, convergence, communication."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.bench.refusals import NO_WORKLOAD
from gpubench_plugin.bench.subjects import (
    FirstForward,
    case_of,
    is_shadowed,
    require_kinds,
    subjects_of,
)
from gpubench_plugin.core import catalog
from gpubench_plugin.core.errors import Unsupported, UsageProblem

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from gpubench_plugin.bench.training_setup import TrainingSetup
    from gpubench_plugin.config.sections import Configuration
    from gpubench_plugin.precision.base import Precision
    from gpubench_plugin.ranks.process_group import ProcessGroup
    from gpubench_plugin.training.convergence import TimeToTarget
    from gpubench_plugin.training.data.base import DataSource
    from gpubench_plugin.training.inference import Inference
    from gpubench_plugin.training.trainer import ExposedCommunication, Trainer
    from gpubench_plugin.workloads.base import Workload


@pytest.fixture
def workload(request: pytest.FixtureRequest) -> Workload[Any]:
    """Workload named by ``model.name``."""
    section = drawn_section(case_of(request).configuration)
    if section.name is None:
        raise UsageProblem(NO_WORKLOAD)
    loaded: Workload[Any] = catalog.load("workloads", section.name)(section)
    return loaded


def drawn_section(configuration: Configuration[Any]) -> Any:
    """Section ``model`` with the device that draws the weights."""
    draws_on_cpu = {"init_device": "cpu"} if configuration.init_device_type == "cpu" else {}
    return configuration.model.model_copy(update=draws_on_cpu)


@pytest.fixture
def _gpubench_setup(
    request: pytest.FixtureRequest,
    gpubench_config: Configuration[Any],
    workload: Workload[Any],
    torch_device: torch.device,
    precision: Precision,
    process_group: ProcessGroup,
) -> TrainingSetup:
    """Set-up, with the parallelism of ``distributed.parallelism``."""
    from gpubench_plugin.bench.training_setup import TrainingSetup

    require_kinds(request, workload=workload, precision=precision)
    return TrainingSetup.of(
        gpubench_config,
        workload=workload,
        device=torch_device,
        precision=precision,
        group=process_group,
    )


@pytest.fixture
def model(request: pytest.FixtureRequest, _gpubench_setup: TrainingSetup) -> torch.nn.Module:
    """The workload's model: seeded, on the device, in its memory format, wrapped and compiled."""
    module = _gpubench_setup.module()
    subjects_of(request).track(FirstForward(module))
    return module


@pytest.fixture
def data(request: pytest.FixtureRequest, _gpubench_setup: TrainingSetup) -> Iterator[DataSource]:
    """Batches of this rank on the device: synthetic, a bundled data set, or files at a path.

    Ranks that share a batch get the samples of all. Loader workers end with the benchmark.
    """
    from gpubench_plugin.training.check import RecordFacts

    configuration = _gpubench_setup.configuration
    if "inference" in request.fixturenames and not is_shadowed(request, "inference"):
        batch_size = configuration.inference.samples(configuration.training)
        training = configuration.training.with_samples(batch_size)
        configuration = configuration.model_copy(update={"training": training})
    with closing(replace(_gpubench_setup, configuration=configuration).source()) as source:
        if description := source.description():
            subjects_of(request).add_check(RecordFacts(data=dict(description)))
        yield source


@pytest.fixture
def trainer(
    request: pytest.FixtureRequest,
    model: torch.nn.Module,
    data: DataSource,
    _gpubench_setup: TrainingSetup,
) -> Trainer:
    """Training loop: ``gpubench(trainer)``.

    Some untimed steps check first that the loss is a finite scalar and falls, and that gradients
    are complete and finite.
    """
    from gpubench_plugin.bench.training_setup import checked_trainer

    require_kinds(request, model=model, data=data)
    return checked_trainer(request, _gpubench_setup, model, data)


@pytest.fixture
def inference(
    request: pytest.FixtureRequest,
    model: torch.nn.Module,
    data: DataSource,
    _gpubench_setup: TrainingSetup,
) -> Inference:
    """Forward pass alone: ``gpubench(inference)``."""
    from gpubench_plugin.bench.training_setup import checked_inference

    require_kinds(request, model=model, data=data)
    return checked_inference(request, _gpubench_setup, model, data)


@pytest.fixture
def convergence(
    request: pytest.FixtureRequest,
    model: torch.nn.Module,
    data: DataSource,
    _gpubench_setup: TrainingSetup,
) -> TimeToTarget:
    """Training to a target: ``gpubench(convergence, setup=convergence.restart)``.

    An untimed training to ``training.target_accuracy`` or ``training.target_loss`` comes first, and
    its precision is compared with fp32.
    """
    from gpubench_plugin.bench.training_setup import checkpoints_of
    from gpubench_plugin.training.convergence import TimeToTarget

    require_kinds(request, model=model, data=data)
    setup, configuration = _gpubench_setup, _gpubench_setup.configuration
    reduces_in_16_bit = configuration.distributed.fsdp_reduce_dtype not in {None, "fp32"}
    is_fp32 = setup.precision.name == "fp32" and not reduces_in_16_bit
    convergence = TimeToTarget(
        course=setup.course(model, data),
        workload=setup.workload,
        data=data,
        training=configuration.training,
        reference=None if is_fp32 else setup.fp32_course,
    )
    if configuration.training.checkpoint:
        checkpoints = checkpoints_of(request, "training.checkpoint", setup)
        convergence.observers.append(
            lambda milestone: checkpoints.save(
                milestone.trainer, milestone.evaluation.metrics, is_best=milestone.is_best
            )
        )
    subjects_of(request).add(convergence, after=[setup.seeds])
    return convergence


@pytest.fixture
def exposed_communication(
    request: pytest.FixtureRequest, trainer: Trainer, _gpubench_setup: TrainingSetup
) -> ExposedCommunication:
    """Adds ``exposed_communication_s`` to a benchmark of `trainer` when requested."""
    from gpubench_plugin.training.trainer import ExposedCommunication

    require_kinds(request, trainer=trainer)
    name = _gpubench_setup.parallelism.name
    if name != "ddp":
        raise Unsupported(
            f"exposed_communication: under {name} a step cannot run without its gradient "
            "exchange; use distributed.parallelism=ddp"
        )
    exposed = ExposedCommunication(trainer)
    subjects_of(request).add_facts(trainer, exposed.facts)
    return exposed
