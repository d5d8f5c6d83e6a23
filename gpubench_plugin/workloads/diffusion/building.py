"""A pipeline made of what is configured."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch

from gpubench_plugin.errors import Unsupported
from gpubench_plugin.workloads.diffusion.denoising import Denoising
from gpubench_plugin.workloads.diffusion.pipeline import Pipeline
from gpubench_plugin.workloads.diffusion.schedulers import Schedule, steps_of
from gpubench_plugin.workloads.diffusion.transport import Transport
from gpubench_plugin.workloads.unet_cond import UNetCond

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import distributed as dist
    from torch import nn

    from gpubench_plugin.config import DiffusionSection
    from gpubench_plugin.precision import Precision
    from gpubench_plugin.records import Json
    from gpubench_plugin.workloads.base import Workload


def build_pipeline(
    module: nn.Module,
    workload: Workload[Any],
    *,
    section: DiffusionSection,
    seed: int,
    precision: Precision,
    device: torch.device,
    rank: int,
    world_size: int,
    backend: str,
    barrier: Callable[[], object],
    hosts: dist.ProcessGroup | None,
    keep: Callable[[Sequence[Json]], None],
) -> Pipeline:
    """The pipeline of `section`, with this rank's part of the work.

    Noise and text of every sample are drawn on the host from `seed`, the same on every rank. Of
    `world_size` ranks, whose default process group has that `backend`, no one returns from
    `barrier` before all have called it; `hosts` is their gloo group, None of a single rank.

    Raises:
        Unsupported: the workload is no U-Net under a text, the scheduler's steps cannot be split
            or do not divide among the ranks, or diffusers is not installed.
    """
    if not isinstance(workload, UNetCond):
        name = workload.section.name
        raise Unsupported(f"model.name={name}: has no denoising steps; allowed: diffusion")
    schedule = Schedule(
        section.scheduler,
        steps=section.denoising_steps,
        beta_schedule=workload.beta_schedule,
        device=device,
    )
    steps = [
        steps_of(
            number,
            world_size=world_size,
            total=schedule.total,
            remainder=section.remainder,
            together=schedule.together,
        )
        for number in range(world_size)
    ]
    drawn = workload.synthetic_batch(
        section.samples,
        device=torch.device("cpu"),
        generator=torch.Generator().manual_seed(seed),
    )
    denoising = Denoising(
        module=module,
        workload=workload,
        schedule=schedule,
        precision=precision,
        device=device,
        texts=drawn.context[-1].to(device),
        seed=seed,
    )
    return Pipeline(
        denoising=denoising,
        workload=workload,
        steps=steps,
        rank=rank,
        latents=(drawn.targets.contiguous() * schedule.initial_scale).to(device),
        transport=_transport(section, device, backend, hosts) if world_size > 1 else None,
        barrier=barrier,
        keep=keep,
    )


def _transport(
    section: DiffusionSection, device: torch.device, backend: str, hosts: dist.ProcessGroup | None
) -> Transport:
    by_host = backend == "gloo"
    return Transport(
        device=device,
        staged=by_host and device.type != "cpu",
        timeout=timedelta(seconds=section.receive_timeout_s),
        # Where tensors go from device to device, headers take the hosts' own group.
        headers=None if by_host else hosts,
    )
