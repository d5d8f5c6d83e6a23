"""Training fixtures: workload, model, data, trainer, inference."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.bench.fixtures import Setting, case_of, parts_of
from gpubench_plugin.bench.training_checks import (
    checkpointing_of,
    reference_of,
    resumption_of,
    seeds_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from gpubench_plugin.config import Configuration
    from gpubench_plugin.distributed import ProcessGroup
    from gpubench_plugin.distributed.parallelism import Parallelism
    from gpubench_plugin.measure import Checkable
    from gpubench_plugin.precision import Precision
    from gpubench_plugin.training import Evaluator, Inference, Trainer
    from gpubench_plugin.training.data import DataSource
    from gpubench_plugin.workloads import Workload


@pytest.fixture
def workload(request: pytest.FixtureRequest) -> Workload[Any]:
    """Workload named by ``model.name``."""
    from gpubench_plugin import catalog
    from gpubench_plugin.errors import UsageProblem

    configuration = case_of(request).configuration
    section = configuration.model
    if section.name is None:
        raise UsageProblem(
            f"{request.node.nodeid}: the configuration names no workload; give the gpubench "
            "mark a config= that sets model.name"
        )
    if configuration.drawn_on == "cpu":
        section = section.model_copy(update={"init_device": "cpu"})
    loaded: Workload[Any] = catalog.load("workloads", section.name)(section)
    return loaded


@pytest.fixture
def _gpubench_setting(
    gpubench_config: Configuration[Any],
    workload: Workload[Any],
    torch_device: torch.device,
    precision: Precision,
    process_group: ProcessGroup,
) -> Setting:
    """Setting, with the parallelism of ``distributed.parallelism``."""
    return setting_of(
        gpubench_config,
        workload=workload,
        device=torch_device,
        precision=precision,
        group=process_group,
    )


def setting_of(
    configuration: Configuration[Any],
    *,
    workload: Workload[Any],
    device: torch.device,
    precision: Precision,
    group: ProcessGroup,
) -> Setting:
    """Setting of `configuration`, with its parallelism.

    Raises:
        Unsupported: the parallelism cannot do the precision or the training.
    """
    from gpubench_plugin import catalog
    from gpubench_plugin.errors import Unsupported

    section = configuration.distributed
    name = section.parallelism
    if name == "auto":
        name = "ddp" if group.world.size > 1 else "none"
    parallelism: Parallelism = catalog.load("parallelism", name)(group, section)
    if reason := parallelism.unsupported(precision.compute_dtype):
        raise Unsupported(f"{name}: {reason}")
    parallelism.configure(workload, configuration.training)
    return Setting(
        configuration=configuration,
        workload=workload,
        device=device,
        precision=precision,
        group=group,
        parallelism=parallelism,
    )


@pytest.fixture
def model(request: pytest.FixtureRequest, _gpubench_setting: Setting) -> torch.nn.Module:
    """The workload's model: seeded, on the device, in its memory format, wrapped and compiled."""
    from gpubench_plugin.bench.benchmark_parts import FirstForward

    module = module_of(_gpubench_setting)
    parts_of(request).track(FirstForward(module))
    return module


def module_of(setting: Setting) -> torch.nn.Module:
    """Build the model of `setting`."""
    from gpubench_plugin.training import build_model

    return build_model(
        setting.workload,
        section=setting.workload.section,
        seed=setting.configuration.experiment.seed,
        device=setting.device,
        precision=setting.precision,
        default_scope=setting.parallelism.default_scope,
        compiled=setting.parallelism.compiled,
        wrap=setting.parallelism.wrap,
    )


@pytest.fixture
def data(request: pytest.FixtureRequest, _gpubench_setting: Setting) -> Iterator[DataSource]:
    """Batches of this rank on the device: synthetic, a bundled data set, or files at a path.

    Ranks that share a batch get the samples of all. Loader workers end with the benchmark.
    """
    from gpubench_plugin.errors import UsageProblem
    from gpubench_plugin.training import RecordFacts

    configuration = _gpubench_setting.configuration
    if "inference" in request.fixturenames:
        training_size = configuration.training.batch_size
        batch_size = configuration.inference.samples(configuration.training)
        if batch_size != training_size and "trainer" in request.fixturenames:
            raise UsageProblem(
                f"{request.node.nodeid}: inference.batch_size={batch_size} conflicts with "
                f"training.batch_size={training_size} of the trainer, since both read the same "
                f"batches; allowed: {training_size}, or separate tests"
            )
        training = configuration.training.with_samples(batch_size)
        configuration = configuration.model_copy(update={"training": training})
    source = source_of(replace(_gpubench_setting, configuration=configuration))
    if description := source.description():
        parts_of(request).add_check(RecordFacts(data=dict(description)))
    try:
        yield source
    finally:
        source.close()


def source_of(setting: Setting) -> DataSource:
    """Open this rank's data source; the caller closes it."""
    from gpubench_plugin import catalog

    configuration, world = setting.configuration, setting.group.world
    sharing = setting.ranks_per_batch
    source: type[DataSource] = catalog.load("data", configuration.data.source)
    return source.from_section(
        configuration.data,
        setting.workload,
        batch_size=configuration.training.samples * sharing,
        device=setting.device,
        world_size=world.size // sharing,
        rank=world.rank // sharing,
        seed=configuration.experiment.seed,
        convert=setting.precision.convert_batch,
    )


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
    setting, parallelism = _gpubench_setting, _gpubench_setting.parallelism
    is_evaluated = setting.configuration.training.evaluate
    evaluator = evaluator_of(setting, model, data) if is_evaluated else None
    trainer = trainer_of(
        setting,
        model,
        data,
        differs_from_one_process=parallelism.differs_from_one_process(model.train()),
        passes=parallelism.passes(model, setting.precision),
        reference=reference_of(setting, shared=case_of(request).shares_device),
        evaluate=None if evaluator is None else evaluator.evaluate,
    )
    resumption = resumption_of(request, trainer, setting)
    after: list[Checkable] = [seeds_of(setting)]
    evaluate = None
    if evaluator is not None:
        from gpubench_plugin.training import EvaluationCheck

        evaluate = cache(evaluator.evaluate)  # since the record and the checkpoint need it
        after.append(EvaluationCheck(evaluate))
    after.extend(checkpointing_of(request, trainer, setting, evaluate))
    parts_of(request).add(trainer, before=resumption, after=after)
    return trainer


def trainer_of(
    setting: Setting, module: torch.nn.Module, source: DataSource, **more: Any
) -> Trainer:
    """Trainer of `module` on the batches of `source`, with `more` arguments of its class."""
    from gpubench_plugin.training import Trainer

    return Trainer(
        module=module,
        workload=setting.workload,
        data=source,
        precision=setting.precision,
        training=setting.configuration.training,
        precision_section=setting.configuration.precision,
        device=setting.device,
        no_sync=partial(setting.parallelism.no_sync, module),
        agreement=setting.group.agreement,
        global_norm=setting.global_norm,
        ranks_per_batch=setting.ranks_per_batch,
        **more,
    )


def evaluator_of(setting: Setting, module: torch.nn.Module, source: DataSource) -> Evaluator:
    """Evaluator of `module` on held-out samples of `source`."""
    from gpubench_plugin.errors import Unsupported
    from gpubench_plugin.training import Evaluator

    if setting.parallelism.passes(module, setting.precision) is not None:
        raise Unsupported(
            f"{setting.parallelism.name}: no rank holds the whole model, which evaluation "
            "needs; use another distributed.parallelism"
        )
    return Evaluator(
        module=module,
        workload=setting.workload,
        data=source,
        precision=setting.precision,
        device=setting.device,
        agreement=setting.group.agreement,
    )


@pytest.fixture
def inference(
    request: pytest.FixtureRequest,
    model: torch.nn.Module,
    data: DataSource,
    _gpubench_setting: Setting,
) -> Inference:
    """Forward pass alone: ``gpubench(inference)``."""
    from gpubench_plugin.training import Inference

    inference = Inference(
        module=model,
        workload=_gpubench_setting.workload,
        data=data,
        precision=_gpubench_setting.precision,
        device=_gpubench_setting.device,
        ranks_per_batch=_gpubench_setting.ranks_per_batch,
    )
    parts_of(request).add(inference)
    return inference
