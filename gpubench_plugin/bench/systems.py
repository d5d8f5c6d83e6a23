"""Fixtures for whole systems: a mixture-of-experts layer, and diffusion split over the ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.bench.fixtures import case_of, parts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import torch

    from gpubench_plugin.config import Configuration
    from gpubench_plugin.distributed import ProcessGroup
    from gpubench_plugin.precision import Precision
    from gpubench_plugin.records import Json
    from gpubench_plugin.workloads import Workload
    from gpubench_plugin.workloads.diffusion import Pipeline
    from gpubench_plugin.workloads.moe import MeasuredLayer


@pytest.fixture
def moe_layer(
    request: pytest.FixtureRequest,
    gpubench_config: Configuration[Any],
    precision: Precision,
    process_group: ProcessGroup,
) -> Iterator[Callable[[str], MeasuredLayer]]:
    """Makes a part of a MoE layer to measure: ``gpubench(moe_layer("forward"))``.

    The section ``moe`` says what the layer is. Its output and gradients are compared with those of
    one process before anything is timed.
    """
    from gpubench_plugin.workloads.moe import Construction, MeasuredLayer, ParallelGroups

    section, world = gpubench_config.moe, process_group.world
    groups = ParallelGroups.of(section, rank=world.rank, world_size=world.size)

    def bound(part: str) -> MeasuredLayer:
        construction = Construction(
            section,
            seed=gpubench_config.experiment.seed,
            groups=groups,
            precision=precision,
            device=process_group.device,
        )
        made = MeasuredLayer(part, construction)
        parts_of(request).add(made)
        return made

    yield bound
    groups.close()


@pytest.fixture
def diffusion(
    request: pytest.FixtureRequest,
    gpubench_config: Configuration[Any],
    workload: Workload[Any],
    torch_device: torch.device,
    precision: Precision,
    process_group: ProcessGroup,
) -> Pipeline:
    """The pipeline of denoising steps: ``gpubench(diffusion, setup=diffusion.meet)``.

    Before it is measured, its outputs are compared, bit by bit, with those of one process.
    """
    from gpubench_plugin.errors import Unsupported
    from gpubench_plugin.launchers import context_of
    from gpubench_plugin.results import append_events
    from gpubench_plugin.training import build_model
    from gpubench_plugin.workloads.diffusion import build_pipeline

    parallelism = gpubench_config.distributed.parallelism
    if parallelism not in {"auto", "none"}:
        raise Unsupported(
            f"distributed.parallelism={parallelism}: every rank of a pipeline of denoising steps "
            "holds the whole network; allowed: auto, none"
        )
    module = build_model(
        workload,
        section=gpubench_config.model,
        seed=gpubench_config.experiment.seed,
        device=torch_device,
        precision=precision,
    )
    folder, rank = context_of(request.config).ranks_folder, process_group.world.rank
    benchmark = case_of(request).id

    def keep(events: Sequence[Json]) -> None:
        if folder is not None:
            append_events(folder, rank, benchmark, events)

    made = build_pipeline(
        module,
        workload,
        section=gpubench_config.diffusion,
        seed=gpubench_config.experiment.seed,
        precision=precision,
        device=torch_device,
        rank=rank,
        world_size=process_group.world.size,
        backend=process_group.backend,
        barrier=process_group.agreement.barrier,
        hosts=process_group.agreement.group,
        keep=keep,
    )
    parts_of(request).add(made)
    return made
