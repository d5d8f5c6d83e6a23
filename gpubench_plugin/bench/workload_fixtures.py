"""Fixtures of workloads: training, inference, MoE layers, diffusion, text generation."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.bench.refusals import NO_WORKLOAD
from gpubench_plugin.bench.subjects import (
    FirstForward,
    case_of,
    is_shadowed,
    reconfigure,
    require_kinds,
    running_state,
    subjects_of,
)
from gpubench_plugin.core import catalog
from gpubench_plugin.core.errors import Unsupported, UsageProblem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import torch

    from gpubench_plugin.bench.training_setup import TrainingSetup
    from gpubench_plugin.config.sections import Configuration
    from gpubench_plugin.core.records import Json
    from gpubench_plugin.precision.base import Precision
    from gpubench_plugin.ranks.process_group import ProcessGroup
    from gpubench_plugin.training.convergence import TimeToTarget
    from gpubench_plugin.training.data.base import DataSource
    from gpubench_plugin.training.generation import Decode, Prefill
    from gpubench_plugin.training.inference import Inference
    from gpubench_plugin.training.trainer import Trainer
    from gpubench_plugin.workloads.base import Workload
    from gpubench_plugin.workloads.diffusion.pipeline import DenoisingPipeline
    from gpubench_plugin.workloads.moe.measured import MoESubject


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
    precision: Precision,
    process_group: ProcessGroup,
) -> TrainingSetup:
    """Set-up, with the parallelism of ``distributed.parallelism``."""
    from gpubench_plugin.bench.training_setup import TrainingSetup

    require_kinds(workload=workload, precision=precision)
    return TrainingSetup.of(
        gpubench_config, workload=workload, precision=precision, group=process_group
    )


@pytest.fixture
def model(request: pytest.FixtureRequest, _gpubench_setup: TrainingSetup) -> torch.nn.Module:
    """The workload's model: seeded, on the device, in its memory format, wrapped and compiled."""
    from gpubench_plugin.training.check import recording

    module, workload = _gpubench_setup.module(), _gpubench_setup.workload
    if text := workload.description(module):
        subjects_of(request).add_check(recording(model=text))
        facts = {"model.parameters": sum(p.numel() for p in module.parameters())}
        reconfigure(request, case_of(request).configuration, facts)
    subjects_of(request).track(FirstForward(module))
    return module


@pytest.fixture
def data(request: pytest.FixtureRequest, _gpubench_setup: TrainingSetup) -> Iterator[DataSource]:
    """Batches of this rank on the device: synthetic, a bundled data set, or files at a path.

    Ranks that share a batch get the samples of all. Loader workers end with the benchmark.
    """
    from gpubench_plugin.training.check import recording

    configuration = _gpubench_setup.configuration
    if "inference" in request.fixturenames and not is_shadowed(request, "inference"):
        batch_size = configuration.inference.samples(configuration.training)
        configuration = configuration.with_samples(batch_size)
    with closing(replace(_gpubench_setup, configuration=configuration).source()) as source:
        if description := source.description():
            subjects_of(request).add_check(recording(data=dict(description)))
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

    require_kinds(model=model, data=data)
    return checked_trainer(request, _gpubench_setup, model, data)


@pytest.fixture
def inference(
    request: pytest.FixtureRequest,
    model: torch.nn.Module,
    data: DataSource,
    _gpubench_setup: TrainingSetup,
) -> Inference:
    """Forward pass alone: ``gpubench(inference)``."""
    require_kinds(model=model, data=data)
    return subjects_of(request).add(_gpubench_setup.inference(model, data))


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

    require_kinds(model=model, data=data)
    setup, configuration = _gpubench_setup, _gpubench_setup.configuration
    reduces_in_16_bit = configuration.distributed.fsdp_reduce_dtype not in {None, "fp32"}
    is_fp32 = setup.precision.name == "fp32" and not reduces_in_16_bit
    convergence = TimeToTarget(
        course=setup.course(model, data),
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
    return subjects_of(request).add(convergence, after=[setup.seeds])


@pytest.fixture
def exposed_communication(trainer: Trainer, _gpubench_setup: TrainingSetup) -> None:
    """Adds ``exposed_communication_s`` to a benchmark of `trainer` when requested."""
    require_kinds(trainer=trainer)
    name = _gpubench_setup.parallelism.name
    if name != "ddp":
        raise Unsupported(
            f"exposed_communication: under {name} a step cannot run without its gradient "
            "exchange; use distributed.parallelism=ddp"
        )
    trainer.times_exchange = True


@pytest.fixture
def moe_layer(
    request: pytest.FixtureRequest,
    gpubench_config: Configuration[Any],
    precision: Precision,
    process_group: ProcessGroup,
) -> Iterator[Callable[[str], MoESubject]]:
    """Factory of MoE layer parts to measure: ``gpubench(moe_layer("forward"))``.

    The section ``moe`` configures the layer. Its output and gradients are compared with those of
    one process before anything is timed.
    """
    from gpubench_plugin.workloads.moe.construction import Construction
    from gpubench_plugin.workloads.moe.groups import ParallelGroups
    from gpubench_plugin.workloads.moe.measured import MoESubject

    require_kinds(precision=precision)
    section, world = gpubench_config.moe, process_group.world
    groups = ParallelGroups.of(section, rank=world.rank, world_size=world.size)

    def make_layer(part: str) -> MoESubject:
        construction = Construction(
            section,
            seed=gpubench_config.experiment.seed,
            groups=groups,
            precision=precision,
            device=process_group.device,
        )
        return subjects_of(request).add(MoESubject(part, construction))

    yield make_layer
    groups.close()


@pytest.fixture
def diffusion(
    request: pytest.FixtureRequest,
    gpubench_config: Configuration[Any],
    workload: Workload[Any],
    precision: Precision,
    process_group: ProcessGroup,
) -> DenoisingPipeline:
    """Denoising pipeline: ``gpubench(diffusion, setup=diffusion.meet)``.

    Its outputs are compared bitwise with those of one process before it is measured.
    """
    from gpubench_plugin.launchers.context import context_of
    from gpubench_plugin.results.recorder import append
    from gpubench_plugin.training.model import build_model
    from gpubench_plugin.workloads.diffusion.pipeline import build_pipeline

    require_kinds(workload=workload, precision=precision)
    _refuse_parallelism(gpubench_config, "every rank of a denoising pipeline has the whole network")
    module = build_model(
        workload,
        seed=gpubench_config.experiment.seed,
        device=process_group.device,
        precision=precision,
    )
    context, state = context_of(request.config), running_state(request)
    folder, rank = context.ranks_folder, process_group.world.rank

    def write_events(events: Sequence[Json]) -> None:
        if folder is not None:
            append(folder, rank, state.case.id, events=events)

    pipeline = build_pipeline(
        module,
        workload,
        section=gpubench_config.diffusion,
        seed=gpubench_config.experiment.seed,
        precision=precision,
        group=process_group,
        remaining_s=partial(state.remaining_s, context.settings.timeout_s),
        on_events=write_events,
    )
    return subjects_of(request).add(pipeline)


def _refuse_parallelism(configuration: Configuration[Any], reason: str) -> None:
    parallelism = configuration.distributed.parallelism
    if parallelism not in {"auto", "none"}:
        raise Unsupported(f"distributed.parallelism={parallelism}: {reason}; allowed: auto, none")


@pytest.fixture
def prefill(_gpubench_generation: Callable[[type[Prefill]], Prefill]) -> Prefill:
    """Prefill of a prompt, up to the first token: ``gpubench(prefill)``.

    Its logits are compared with those of a forward pass without a cache before it is measured.
    """
    from gpubench_plugin.training.generation import Prefill

    return _gpubench_generation(Prefill)


@pytest.fixture
def decode(_gpubench_generation: Callable[[type[Decode]], Decode]) -> Decode:
    """Token-by-token decoding with a static cache: ``gpubench(decode)``.

    Its logits are compared with those of a forward pass without a cache before it is measured.
    """
    from gpubench_plugin.training.generation import Decode

    return _gpubench_generation(Decode)


@pytest.fixture
def _gpubench_generation(
    request: pytest.FixtureRequest,
    gpubench_config: Configuration[Any],
    workload: Workload[Any],
    torch_device: torch.device,
    precision: Precision,
) -> Callable[[type[Any]], Any]:
    """Factory of prefill and decode steps of the unsharded model, with prompts and a cache.

    Raises:
        Unsupported: the workload generates no text, or a parallelism is configured.
    """
    from gpubench_plugin.training.compile import call_compiler
    from gpubench_plugin.training.model import build_model
    from gpubench_plugin.workloads._language import CausalLanguageModel

    require_kinds(workload=workload, precision=precision)
    section, inference = gpubench_config.model, gpubench_config.inference
    if not isinstance(workload, CausalLanguageModel):
        raise Unsupported(
            f"{section.name}: this model does not generate text; allowed: causal language models"
        )
    _refuse_parallelism(gpubench_config, "text generation runs on one rank")
    sequences = inference.samples(gpubench_config.training)
    compile = call_compiler(section)
    seed = gpubench_config.experiment.seed

    def make_step(kind: type[Any]) -> Any:
        generation = kind(
            module=build_model(
                workload, seed=seed, device=torch_device, precision=precision, is_eager=True
            ),
            workload=workload,
            sequences=sequences,
            prompt_tokens=inference.prompt_tokens,
            new_tokens=inference.new_tokens,
            precision=precision,
            device=torch_device,
            seed=seed,
            compile=compile,
        )
        return subjects_of(request).add(generation)

    return make_step
