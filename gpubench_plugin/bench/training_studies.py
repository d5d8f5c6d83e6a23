"""Fixtures of time to target and exposed communication."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.bench.running_benchmark import subjects_of
from gpubench_plugin.bench.setting import evaluator_of, source_of, trainer_of
from gpubench_plugin.bench.shadowed_fixtures import require_kinds
from gpubench_plugin.bench.training_checks import observe_with_checkpoints, seeds_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from gpubench_plugin.bench.setting import Setting
    from gpubench_plugin.config.sections import TrainingSection
    from gpubench_plugin.training.convergence import ReproducibleTraining, TimeToTarget
    from gpubench_plugin.training.data.base import DataSource
    from gpubench_plugin.training.parallelism.base import Parallelism
    from gpubench_plugin.training.trainer import ExposedCommunication, Trainer
    from gpubench_plugin.workloads.base import Workload


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
    _gpubench_setting: Setting,
) -> TimeToTarget:
    """Training to a target: ``gpubench(convergence, setup=convergence.restart)``.

    An untimed training to ``training.target_accuracy`` or ``training.target_loss`` comes first, and
    its precision is compared with fp32.
    """
    from gpubench_plugin.training.convergence import TimeToTarget

    require_kinds(request, model=model, data=data)
    setting, configuration = _gpubench_setting, _gpubench_setting.configuration
    reduces_in_16_bit = configuration.distributed.fsdp_reduce_dtype not in {None, "fp32"}
    is_fp32 = setting.precision.name == "fp32" and not reduces_in_16_bit
    convergence = TimeToTarget(
        course=_course(setting, model, data),
        workload=setting.workload,
        data=data,
        training=configuration.training,
        agreement=setting.group.agreement,
        reference=None if is_fp32 else partial(_reference, setting),
    )
    observe_with_checkpoints(request, convergence, setting)
    subjects_of(request).add(convergence, after=[seeds_of(setting)])
    return convergence


def _course(setting: Setting, module: torch.nn.Module, source: DataSource) -> ReproducibleTraining:
    from gpubench_plugin.training.convergence import ReproducibleTraining

    return ReproducibleTraining(
        module=module,
        data=source,
        evaluator=evaluator_of(setting, module, source),
        build_trainer=partial(trainer_of, setting, module, source),
        seed=setting.configuration.experiment.seed,
    )


@contextmanager
def _reference(setting: Setting) -> Iterator[ReproducibleTraining]:
    """Training in fp32 that is otherwise the same."""
    from gpubench_plugin.core import catalog
    from gpubench_plugin.training.compile import EAGER
    from gpubench_plugin.training.model import build_model

    configuration, workload = setting.configuration, setting.workload
    fp32 = catalog.load("precision", "fp32")()
    with fp32.switches():
        module = build_model(
            workload,
            section=workload.section.model_copy(update=EAGER),
            seed=configuration.experiment.seed,
            device=setting.device,
            precision=fp32,
            wrap=in_fp32(setting.parallelism, workload, configuration.training).wrap,
        )
        plain = replace(setting, precision=fp32)
        source = source_of(plain)
        try:
            yield _course(plain, module, source)
        finally:
            source.close()


@pytest.fixture
def exposed_communication(
    request: pytest.FixtureRequest, trainer: Trainer, _gpubench_setting: Setting
) -> ExposedCommunication:
    """Adds ``exposed_communication_s`` to a benchmark of `trainer` when requested."""
    from gpubench_plugin.core.errors import Unsupported
    from gpubench_plugin.training.trainer import ExposedCommunication

    require_kinds(request, trainer=trainer)
    name = _gpubench_setting.parallelism.name
    if name != "ddp":
        raise Unsupported(
            f"exposed_communication: under {name} a step cannot run without its gradient "
            "exchange; use distributed.parallelism=ddp"
        )
    exposed = ExposedCommunication(
        step_with_exchange=trainer.step,
        step_without_exchange=trainer.step_without_exchange,
        barrier=_gpubench_setting.group.agreement.barrier,
        device=_gpubench_setting.device,
    )
    subjects_of(request).add_facts(trainer, exposed.facts)
    return exposed
