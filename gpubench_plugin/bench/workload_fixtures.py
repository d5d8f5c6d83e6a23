"""Fixtures of mixture-of-experts layers, distributed diffusion, and text generation."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.bench.subjects import require_kinds, running_state, subjects_of
from gpubench_plugin.core.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import torch

    from gpubench_plugin.config.sections import Configuration
    from gpubench_plugin.core.records import Json
    from gpubench_plugin.precision.base import Precision
    from gpubench_plugin.ranks.process_group import ProcessGroup
    from gpubench_plugin.training.generation import Decode, Prefill
    from gpubench_plugin.workloads.base import Workload
    from gpubench_plugin.workloads.diffusion.pipeline import DenoisingPipeline
    from gpubench_plugin.workloads.moe.measured import MoESubject


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

    require_kinds(request, precision=precision)
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
        layer = MoESubject(part, construction)
        subjects_of(request).add(layer)
        return layer

    yield make_layer
    groups.close()


@pytest.fixture
def diffusion(
    request: pytest.FixtureRequest,
    gpubench_config: Configuration[Any],
    workload: Workload[Any],
    torch_device: torch.device,
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

    require_kinds(request, workload=workload, precision=precision)
    _refuse_parallelism(gpubench_config, "every rank of a denoising pipeline has the whole network")
    module = build_model(
        workload,
        section=gpubench_config.model,
        seed=gpubench_config.experiment.seed,
        device=torch_device,
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
        device=torch_device,
        group=process_group,
        remaining_s=partial(state.remaining_s, context.settings.timeout_s),
        on_events=write_events,
    )
    subjects_of(request).add(pipeline)
    return pipeline


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
    from gpubench_plugin.training.compile import EAGER, call_compiler
    from gpubench_plugin.training.model import build_model
    from gpubench_plugin.workloads._language import CausalLanguageModel

    require_kinds(request, workload=workload, precision=precision)
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
                workload,
                section=section.model_copy(update=EAGER),
                seed=seed,
                device=torch_device,
                precision=precision,
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
        subjects_of(request).add(generation)
        return generation

    return make_step
