"""Training fixtures: workload, model, data, trainer, inference, convergence, communication."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from gpubench_plugin.bench.shadowed_fixtures import is_shadowed, require_kinds
from gpubench_plugin.bench.subjects import case_of, subjects_of
from gpubench_plugin.bench.training_checks import (
    checkpointing_of,
    observe_with_checkpoints,
    reference_of,
    resumption_of,
    scheduled,
    seeds_of,
)
from gpubench_plugin.bench.training_setup import TrainingSetup, drawn_section

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from gpubench_plugin.config.sections import Configuration, TrainingSection
    from gpubench_plugin.measure.protocols import Checkable
    from gpubench_plugin.precision.base import Precision
    from gpubench_plugin.ranks.process_group import ProcessGroup
    from gpubench_plugin.training.convergence import ReproducibleTraining, TimeToTarget
    from gpubench_plugin.training.data.base import DataSource
    from gpubench_plugin.training.inference import Inference
    from gpubench_plugin.training.parallelism.base import Parallelism
    from gpubench_plugin.training.trainer import ExposedCommunication, Trainer
    from gpubench_plugin.workloads.base import Workload


NO_WORKLOAD: Final = (
    "the configuration names no workload; give the gpubench mark a config= that sets model.name"
)


@pytest.fixture
def workload(request: pytest.FixtureRequest) -> Workload[Any]:
    """Workload named by ``model.name``."""
    from gpubench_plugin.core import catalog
    from gpubench_plugin.core.errors import UsageProblem

    configuration = case_of(request).configuration
    section = drawn_section(configuration)
    if section.name is None:
        raise UsageProblem(NO_WORKLOAD)
    loaded: Workload[Any] = catalog.load("workloads", section.name)(section)
    return loaded


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
    from gpubench_plugin.bench.subjects import FirstForward

    module = _gpubench_setup.module()
    subjects_of(request).track(FirstForward(module))
    return module


def batch_refusal(configuration: Configuration[Any]) -> str:
    """Reason why trainer and inference cannot share batches; empty if they can."""
    training_size = configuration.training.batch_size
    batch_size = configuration.inference.samples(configuration.training)
    if batch_size == training_size:
        return ""
    return (
        f"inference.batch_size={batch_size} conflicts with training.batch_size={training_size} of "
        f"the trainer, since both read the same batches; allowed: {training_size}, or separate "
        "tests"
    )


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
    source = replace(_gpubench_setup, configuration=configuration).source()
    if description := source.description():
        subjects_of(request).add_check(RecordFacts(data=dict(description)))
    try:
        yield source
    finally:
        source.close()


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
    require_kinds(request, model=model, data=data)
    return checked_trainer(request, _gpubench_setup, model, data)


def checked_trainer(
    request: pytest.FixtureRequest,
    setup: TrainingSetup,
    module: torch.nn.Module,
    source: DataSource,
) -> Trainer:
    """Trainer of `module` on `source`, registered with all untimed checks of the benchmark."""
    setup, parallelism = scheduled(setup, source), setup.parallelism
    is_evaluated = setup.configuration.training.evaluate
    evaluator = setup.evaluator(module, source) if is_evaluated else None
    trainer = setup.trainer(
        module,
        source,
        differs_from_one_process=parallelism.differs_from_one_process(module.train()),
        passes=parallelism.passes(module, setup.precision),
        reference=reference_of(setup, shared=case_of(request).shares_device),
        evaluate=None if evaluator is None else evaluator.evaluate,
    )
    resumption = resumption_of(request, trainer, setup)
    after: list[Checkable] = [seeds_of(setup)]
    evaluate = None
    if evaluator is not None:
        from gpubench_plugin.training.evaluation import EvaluationCheck

        evaluate = cache(evaluator.evaluate)  # since the record and the checkpoint need it
        after.append(EvaluationCheck(evaluate))
    after.extend(checkpointing_of(request, trainer, setup, evaluate))
    subjects_of(request).add(trainer, before=resumption, after=after)
    return trainer


@pytest.fixture
def inference(
    request: pytest.FixtureRequest,
    model: torch.nn.Module,
    data: DataSource,
    _gpubench_setup: TrainingSetup,
) -> Inference:
    """Forward pass alone: ``gpubench(inference)``."""
    require_kinds(request, model=model, data=data)
    return checked_inference(request, _gpubench_setup, model, data)


def checked_inference(
    request: pytest.FixtureRequest,
    setup: TrainingSetup,
    module: torch.nn.Module,
    source: DataSource,
) -> Inference:
    """Inference of `module` on `source`, registered with the benchmark."""
    from gpubench_plugin.training.inference import Inference

    inference = Inference(
        module=module,
        workload=setup.workload,
        data=source,
        precision=setup.precision,
        device=setup.device,
        ranks_per_batch=setup.ranks_per_batch,
    )
    subjects_of(request).add(inference)
    return inference


def in_fp32(
    parallelism: Parallelism, workload: Workload[Any], training: TrainingSection
) -> Parallelism:
    """Copy `parallelism` without its 16-bit gather and reduce dtypes."""
    types = {"fsdp_param_dtype": None, "fsdp_reduce_dtype": None}
    section = parallelism.section.model_copy(update=types)
    copy = type(parallelism)(parallelism.group, section)
    copy.configure(workload, training)
    return copy


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
    from gpubench_plugin.training.convergence import TimeToTarget

    require_kinds(request, model=model, data=data)
    setup, configuration = _gpubench_setup, _gpubench_setup.configuration
    reduces_in_16_bit = configuration.distributed.fsdp_reduce_dtype not in {None, "fp32"}
    is_fp32 = setup.precision.name == "fp32" and not reduces_in_16_bit
    convergence = TimeToTarget(
        course=_course(setup, model, data),
        workload=setup.workload,
        data=data,
        training=configuration.training,
        agreement=setup.group.agreement,
        reference=None if is_fp32 else partial(_reference, setup),
    )
    observe_with_checkpoints(request, convergence, setup)
    subjects_of(request).add(convergence, after=[seeds_of(setup)])
    return convergence


def _course(
    setup: TrainingSetup, module: torch.nn.Module, source: DataSource
) -> ReproducibleTraining:
    from gpubench_plugin.training.convergence import ReproducibleTraining

    return ReproducibleTraining(
        module=module,
        data=source,
        evaluator=setup.evaluator(module, source),
        build_trainer=partial(setup.trainer, module, source),
        seed=setup.configuration.experiment.seed,
    )


@contextmanager
def _reference(setup: TrainingSetup) -> Iterator[ReproducibleTraining]:
    """Training in fp32 that is otherwise the same."""
    from gpubench_plugin.core import catalog
    from gpubench_plugin.training.compile import EAGER
    from gpubench_plugin.training.model import build_model

    configuration, workload = setup.configuration, setup.workload
    fp32 = catalog.load("precision", "fp32")()
    with fp32.switches():
        module = build_model(
            workload,
            section=workload.section.model_copy(update=EAGER),
            seed=configuration.experiment.seed,
            device=setup.device,
            precision=fp32,
            wrap=in_fp32(setup.parallelism, workload, configuration.training).wrap,
        )
        plain = replace(setup, precision=fp32)
        source = plain.source()
        try:
            yield _course(plain, module, source)
        finally:
            source.close()


@pytest.fixture
def exposed_communication(
    request: pytest.FixtureRequest, trainer: Trainer, _gpubench_setup: TrainingSetup
) -> ExposedCommunication:
    """Adds ``exposed_communication_s`` to a benchmark of `trainer` when requested."""
    from gpubench_plugin.core.errors import Unsupported
    from gpubench_plugin.training.trainer import ExposedCommunication

    require_kinds(request, trainer=trainer)
    name = _gpubench_setup.parallelism.name
    if name != "ddp":
        raise Unsupported(
            f"exposed_communication: under {name} a step cannot run without its gradient "
            "exchange; use distributed.parallelism=ddp"
        )
    exposed = ExposedCommunication(
        step_with_exchange=trainer.step,
        step_without_exchange=trainer.step_without_exchange,
        barrier=_gpubench_setup.group.agreement.barrier,
        device=_gpubench_setup.device,
    )
    subjects_of(request).add_facts(trainer, exposed.facts)
    return exposed
