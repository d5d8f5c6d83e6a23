"""Denoising steps of one sample on one rank, and a log of what that rank did, and when."""

from __future__ import annotations

import hashlib
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch

from gpubench_plugin.environment import synchronize
from gpubench_plugin.workloads.base import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor, nn

    from gpubench_plugin.precision import Precision
    from gpubench_plugin.records import Json
    from gpubench_plugin.workloads.base import Workload
    from gpubench_plugin.workloads.diffusion.schedulers import Schedule


class EventLog:
    """Events with their beginning and their length, in seconds since the log was opened.

    It waits for the `device` around each, so it belongs to a call that is not timed.
    """

    def __init__(self, device: torch.device, now: Callable[[], float] = perf_counter):
        self._device = device
        self._now = now
        self._opened = now()
        self.events: list[Json] = []

    @contextmanager
    def during(self, event: str, **facts: object) -> Iterator[None]:
        """Note the body as an `event`, also where it fails."""
        synchronize(self._device)
        began = self._now()
        try:
            yield
        finally:
            synchronize(self._device)
            self.events.append(
                {
                    "event": event,
                    **facts,
                    "at_s": began - self._opened,
                    "duration_s": self._now() - began,
                }
            )


def noted(log: EventLog | None, event: str, **facts: object) -> AbstractContextManager[None]:
    """The body noted in `log`; without one nothing is noted, and nothing waited for."""
    return nullcontext() if log is None else log.during(event, **facts)


@dataclass(eq=False, kw_only=True)
class Denoising:
    """Takes any sample through any range of steps; a step depends on nothing outside itself.

    Latent images are fp32 between the steps, whatever the network computes in. The noise that a
    step draws is seeded by `seed`, sample and step. `texts` are those of the samples,
    N×tokens×features, on the `device` of the `module`.
    """

    module: nn.Module
    workload: Workload[Any]
    schedule: Schedule
    precision: Precision
    device: torch.device
    texts: Tensor
    seed: int

    def __post_init__(self) -> None:
        self.module.eval()
        self._texts = self.texts.split(1)
        self._generator = torch.Generator(self.device) if self.schedule.draws else None

    def __call__(
        self, latents: Tensor, *, sample: int, steps: range, log: EventLog | None = None
    ) -> Tensor:
        """The `latents` of the sample with that number, 1×C×H×W, after these steps."""
        scheduler = self.schedule.beginning_at(steps.start)
        for step in steps:
            with noted(log, "step", sample=sample, step=step):
                latents = self._step(scheduler, latents, sample=sample, step=step)
        return latents

    def _step(self, scheduler: Any, latents: Tensor, *, sample: int, step: int) -> Tensor:
        timestep = self.schedule.timesteps[step]
        scaled = latents
        if hasattr(scheduler, "scale_model_input"):
            scaled = scheduler.scale_model_input(latents, timestep)
        noise = self._noise(scaled, sample=sample, step=step)
        options: dict[str, Any] = {}
        if self._generator is not None:
            self._generator.manual_seed(seed_of(self.seed, sample, step))
            options["generator"] = self._generator
        stepped: Tensor = scheduler.step(noise, timestep, latents, return_dict=False, **options)[0]
        return stepped

    def _noise(self, scaled: Tensor, *, sample: int, step: int) -> Tensor:
        """What the network takes for noise, in the type of the latents."""
        inputs = scaled.contiguous(memory_format=self.workload.memory_format)
        batch = self.precision.convert_batch(Batch(inputs, inputs, (self._texts[sample],)))
        # Times stay as they are: 16 bits do not tell 999 from 1000.
        batch = batch._replace(context=(self.schedule.on_device[step], *batch.context))
        with self.precision.forward_context(self.device):
            predicted = self.workload.forward(self.module, batch)
        return predicted.to(scaled.dtype)


def seed_of(seed: int, sample: int, step: int) -> int:
    """A seed for the noise of one step of one sample, different for all others."""
    digest = hashlib.blake2b(f"{seed} {sample} {step}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 1  # torch takes 63 bits
