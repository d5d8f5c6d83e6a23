"""Denoising steps on one rank, with an event log."""

from __future__ import annotations

import hashlib
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch

from gpubench_plugin.environment.devices import synchronize
from gpubench_plugin.workloads.base import Batch, Workload

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn

    from gpubench_plugin.core.records import Json
    from gpubench_plugin.precision.base import Precision
    from gpubench_plugin.workloads.diffusion.schedulers import NoiseSchedule


class EventLog:
    """Events with start and duration in seconds since the log was opened.

    Each event synchronizes the `device` twice, for untimed calls only; without one the times are
    those of the host.
    """

    def __init__(self, device: torch.device | None):
        self._device = device
        self._opened_at = perf_counter()
        self.events: list[Json] = []

    @contextmanager
    def event(self, event: str, **facts: object) -> Iterator[None]:
        """Log the body as an `event`, even if it fails."""
        self._synchronize()
        started = perf_counter()
        try:
            yield
        finally:
            self._synchronize()
            self.events.append(
                {
                    "event": event,
                    **facts,
                    "at_s": started - self._opened_at,
                    "duration_s": perf_counter() - started,
                }
            )

    def _synchronize(self) -> None:
        if self._device is not None:
            synchronize(self._device)


def logged(log: EventLog | None, event: str, **facts: object) -> AbstractContextManager[None]:
    """Log the body in `log`, if any; without one there is no synchronization either."""
    return nullcontext() if log is None else log.event(event, **facts)


@dataclass(eq=False, kw_only=True)
class Denoising:
    """Runs any range of steps of any sample, without hidden state.

    Latents are fp32 between steps in every precision. The noise of a step is seeded by `seed`,
    sample and step. `texts` are embeddings of the samples, N×tokens×features, on `device`.
    """

    module: nn.Module
    workload: Workload[Any]
    schedule: NoiseSchedule
    precision: Precision
    device: torch.device
    texts: Tensor
    seed: int

    def __post_init__(self) -> None:
        self.module.eval()
        self._texts = self.texts.split(1)
        self._generator = torch.Generator(self.device) if self.schedule.draws_noise else None

    def __call__(
        self, latents: Tensor, *, sample: int, steps: range, log: EventLog | None = None
    ) -> Tensor:
        """Latents of the sample, 1×C×H×W, after these steps."""
        scheduler = self.schedule.scheduler_at(steps.start)
        for step in steps:
            with logged(log, "step", sample=sample, step=step):
                latents = self._step(scheduler, latents, sample=sample, step=step)
        return latents

    def _step(self, scheduler: Any, latents: Tensor, *, sample: int, step: int) -> Tensor:
        timestep = self.schedule.timesteps[step]
        model_input = latents
        if hasattr(scheduler, "scale_model_input"):
            model_input = scheduler.scale_model_input(latents, timestep)
        noise = self._noise(model_input, sample=sample, step=step)
        options: dict[str, Any] = {}
        if self._generator is not None:
            self._generator.manual_seed(seed_of(self.seed, sample, step))
            options["generator"] = self._generator
        stepped: Tensor = scheduler.step(noise, timestep, latents, return_dict=False, **options)[0]
        return stepped

    def _noise(self, model_input: Tensor, *, sample: int, step: int) -> Tensor:
        """Noise predicted by the network, in the latents' dtype."""
        inputs = model_input.contiguous(memory_format=self.workload.memory_format)
        batch = self.precision.convert_batch(Batch(inputs, inputs, (self._texts[sample],)))
        # Time steps are not converted: 16 bits do not distinguish 999 from 1000.
        batch = batch._replace(context=(self.schedule.on_device[step], *batch.context))
        with self.precision.forward_context(self.device):
            predicted = self.workload.forward(self.module, batch)
        return predicted.to(model_input.dtype)


def seed_of(seed: int, sample: int, step: int) -> int:
    """Unique seed for the noise of one step of one sample."""
    digest = hashlib.blake2b(f"{seed} {sample} {step}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 1  # torch takes 63 bits
