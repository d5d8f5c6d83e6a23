"""Training fixtures: workload, model, data, trainer, inference."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import pytest

from gpubench_plugin.bench.running_benchmark import case_of, subjects_of
from gpubench_plugin.bench.setting import (
    drawn_section,
    evaluator_of,
    module_of,
    setting_of,
    source_of,
    trainer_of,
)
from gpubench_plugin.bench.shadowed_fixtures import is_shadowed, require_kinds
from gpubench_plugin.bench.training_checks import (
    checkpointing_of,
    reference_of,
    resumption_of,
    scheduled,
    seeds_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from gpubench_plugin.bench.setting import Setting
    from gpubench_plugin.config.sections import Configuration
    from gpubench_plugin.measure.protocols import Checkable
    from gpubench_plugin.precision.base import Precision
    from gpubench_plugin.ranks.process_group import ProcessGroup
    from gpubench_plugin.training.data.base import DataSource
    from gpubench_plugin.training.inference import Inference
    from gpubench_plugin.training.trainer import Trainer
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
def _gpubench_setting(
    request: pytest.FixtureRequest,
    gpubench_config: Configuration[Any],
    workload: Workload[Any],
    torch_device: torch.device,
    precision: Precision,
    process_group: ProcessGroup,
) -> Setting:
    """Setting, with the parallelism of ``distributed.parallelism``."""
    require_kinds(request, workload=workload, precision=precision)
    return setting_of(
        gpubench_config,
        workload=workload,
        device=torch_device,
        precision=precision,
        group=process_group,
    )


@pytest.fixture
def model(request: pytest.FixtureRequest, _gpubench_setting: Setting) -> torch.nn.Module:
    """The workload's model: seeded, on the device, in its memory format, wrapped and compiled."""
    from gpubench_plugin.bench.subjects import FirstForward

    module = module_of(_gpubench_setting)
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
def data(request: pytest.FixtureRequest, _gpubench_setting: Setting) -> Iterator[DataSource]:
    """Batches of this rank on the device: synthetic, a bundled data set, or files at a path.

    Ranks that share a batch get the samples of all. Loader workers end with the benchmark.
    """
    from gpubench_plugin.core.errors import UsageProblem
    from gpubench_plugin.training.check import RecordFacts

    configuration = _gpubench_setting.configuration
    if "inference" in request.fixturenames and not is_shadowed(request, "inference"):
        batch_size = configuration.inference.samples(configuration.training)
        reason = batch_refusal(configuration)
        if reason and "trainer" in request.fixturenames:
            raise UsageProblem(reason)
        training = configuration.training.with_samples(batch_size)
        configuration = configuration.model_copy(update={"training": training})
    source = source_of(replace(_gpubench_setting, configuration=configuration))
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
    _gpubench_setting: Setting,
) -> Trainer:
    """Training loop: ``gpubench(trainer)``.

    Some untimed steps check first that the loss is a finite scalar and falls, and that gradients
    are complete and finite.
    """
    require_kinds(request, model=model, data=data)
    return checked_trainer(request, _gpubench_setting, model, data)


def checked_trainer(
    request: pytest.FixtureRequest, setting: Setting, module: torch.nn.Module, source: DataSource
) -> Trainer:
    """Trainer of `module` on `source`, registered with all untimed checks of the benchmark."""
    setting, parallelism = scheduled(setting, source), setting.parallelism
    is_evaluated = setting.configuration.training.evaluate
    evaluator = evaluator_of(setting, module, source) if is_evaluated else None
    trainer = trainer_of(
        setting,
        module,
        source,
        differs_from_one_process=parallelism.differs_from_one_process(module.train()),
        passes=parallelism.passes(module, setting.precision),
        reference=reference_of(setting, shared=case_of(request).shares_device),
        evaluate=None if evaluator is None else evaluator.evaluate,
    )
    resumption = resumption_of(request, trainer, setting)
    after: list[Checkable] = [seeds_of(setting)]
    evaluate = None
    if evaluator is not None:
        from gpubench_plugin.training.evaluation import EvaluationCheck

        evaluate = cache(evaluator.evaluate)  # since the record and the checkpoint need it
        after.append(EvaluationCheck(evaluate))
    after.extend(checkpointing_of(request, trainer, setting, evaluate))
    subjects_of(request).add(trainer, before=resumption, after=after)
    return trainer


@pytest.fixture
def inference(
    request: pytest.FixtureRequest,
    model: torch.nn.Module,
    data: DataSource,
    _gpubench_setting: Setting,
) -> Inference:
    """Forward pass alone: ``gpubench(inference)``."""
    require_kinds(request, model=model, data=data)
    return checked_inference(request, _gpubench_setting, model, data)


def checked_inference(
    request: pytest.FixtureRequest, setting: Setting, module: torch.nn.Module, source: DataSource
) -> Inference:
    """Inference of `module` on `source`, registered with the benchmark."""
    from gpubench_plugin.training.inference import Inference

    inference = Inference(
        module=module,
        workload=setting.workload,
        data=source,
        precision=setting.precision,
        device=setting.device,
        ranks_per_batch=setting.ranks_per_batch,
    )
    subjects_of(request).add(inference)
    return inference
