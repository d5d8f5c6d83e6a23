"""Denoising steps on one rank: schedulers that can be split, steps by rank, and an event log."""

from __future__ import annotations

import copy
import hashlib
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from time import perf_counter
from typing import Any, Final

import torch
from torch import Tensor, nn

from gpubench_plugin.config.sections import SCHEDULERS
from gpubench_plugin.core.errors import Unsupported
from gpubench_plugin.core.records import Json
from gpubench_plugin.environment.devices import synchronize
from gpubench_plugin.precision.base import Precision
from gpubench_plugin.workloads._transformers import from_library
from gpubench_plugin.workloads.base import Batch, Workload


@dataclass(frozen=True, kw_only=True)
class SplittableScheduler:
    """A diffusers scheduler without state between steps: any rank can continue from any step.

    If it `draws_noise`, a step takes a generator. It keeps state between the
    `evaluations_per_step` network evaluations of a step. `takes_betas` says whether it takes the
    arguments of the beta schedule; `options` are further arguments.
    """

    draws_noise: bool = False
    evaluations_per_step: int = 1
    takes_betas: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)


_UNCLIPPED: Final = {"clip_sample": False}  # latents are unbounded

SPLIT_SAFE: Final[Mapping[str, SplittableScheduler]] = {
    "ddim": SplittableScheduler(options=_UNCLIPPED),
    "ddpm": SplittableScheduler(draws_noise=True, options=_UNCLIPPED),
    "euler": SplittableScheduler(),
    "euler-ancestral": SplittableScheduler(draws_noise=True),
    "flow-match-euler": SplittableScheduler(takes_betas=False),
    # The second evaluation of a step needs the first one's derivative.
    "heun": SplittableScheduler(evaluations_per_step=2),
    "lcm": SplittableScheduler(draws_noise=True),
}
"""The splittable values of ``diffusion.scheduler``."""


class NoiseSchedule:
    """Time steps of one scheduler, which can be started at any step.

    `beta_schedule` are diffusers' arguments for how noise grows with time.

    Raises:
        Unsupported: diffusers is not installed, the steps of the scheduler cannot be split, or it
            rejects the number of steps.
    """

    def __init__(
        self, name: str, *, steps: int, beta_schedule: Mapping[str, Any], device: torch.device
    ):
        if name not in SPLIT_SAFE:
            raise Unsupported(
                f"diffusion.scheduler={name}: it depends on network outputs of earlier steps, "
                f"which a later rank does not have; allowed: {', '.join(SPLIT_SAFE)}"
            )
        kind = SPLIT_SAFE[name]
        self.evaluations_per_step, self.draws_noise = kind.evaluations_per_step, kind.draws_noise
        (scheduler_class,) = from_library(
            f"diffusion.scheduler={name}", "diffusers", SCHEDULERS[name]
        )
        betas = beta_schedule if kind.takes_betas else {}
        with warnings.catch_warnings():
            # Some of diffusers' schedulers pass tensors to numpy in a way deprecated by numpy 2.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._template = scheduler_class(**betas, **kind.options)
            try:
                self._template.set_timesteps(steps)
            except ValueError as error:
                raise Unsupported(
                    f"diffusion.denoising_steps={steps}: rejected by {name}: {error}"
                ) from error
        # The scheduler needs time steps on the host, the network on its device.
        self.timesteps: Tensor = self._template.timesteps
        self.on_device: tuple[Tensor, ...] = self.timesteps.to(device).split(1)
        self.total = len(self.timesteps)
        """Network evaluations per sample, which may differ from the number of steps."""
        self.initial_scale = float(getattr(self._template, "init_noise_sigma", 1.0))
        """Standard deviation of the initial noise."""

    def scheduler_at(self, step: int) -> Any:
        """A diffusers scheduler positioned before `step`."""
        scheduler = copy.copy(self._template)
        if hasattr(scheduler, "set_begin_index"):  # else it goes by the time step alone
            scheduler.set_begin_index(step)
        return scheduler


REMAINDERS: Final = ("first", "last", "spread")
"""Ranks that take the remaining steps: the first, the last, or the first few one each."""


def steps_by_rank(
    world_size: int, *, total: int, remainder: str = "refuse", evaluations_per_step: int = 1
) -> list[range]:
    """Network evaluations of each rank among `total`, counted from zero.

    `remainder` is one of :data:`REMAINDERS`, or ``refuse``.

    Raises:
        Unsupported: steps remain and are refused, a rank would have none, or a solver step would be
            split between ranks.
    """
    if world_size > total:
        raise Unsupported(
            f"diffusion.denoising_steps: {total} steps are too few for {world_size} ranks; "
            f"allowed: at least {world_size} steps"
        )
    base_count, extra_count = divmod(total, world_size)
    extra_steps = [0] * world_size
    if remainder == "first":
        extra_steps[0] = extra_count
    elif remainder == "last":
        extra_steps[-1] = extra_count
    elif remainder == "spread":
        extra_steps[:extra_count] = [1] * extra_count
    elif extra_count:
        raise Unsupported(
            f"diffusion.denoising_steps: {total} steps are not divisible by {world_size} "
            f"ranks (remainder {extra_count}); allowed: a multiple of {world_size}, or "
            f"diffusion.remainder={', '.join(REMAINDERS)}"
        )
    ends = list(accumulate(base_count + extra for extra in extra_steps))
    for rank, end in enumerate(ends):
        if end % evaluations_per_step and end < total:
            raise Unsupported(
                f"diffusion.denoising_steps: the boundary between ranks {rank} and {rank + 1}, at "
                f"{end} of {total}, would split a step of {evaluations_per_step} evaluations; "
                "choose another number of steps or ranks, or another diffusion.remainder"
            )
    return [range(*pair) for pair in pairwise([0, *ends])]


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
    sample and step. `texts` are embeddings of the samples, N×tokens×features, on
    the device.
    """

    module: nn.Module
    workload: Workload[Any]
    schedule: NoiseSchedule
    precision: Precision
    texts: Tensor
    seed: int

    def __post_init__(self) -> None:
        self.module.eval()
        self._texts = self.texts.split(1)
        self._generator = torch.Generator(self.texts.device) if self.schedule.draws_noise else None

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
        with self.precision.forward_context(self.texts.device):
            predicted = self.workload.forward(self.module, batch)
        return predicted.to(model_input.dtype)


def seed_of(seed: int, sample: int, step: int) -> int:
    """Unique seed for the noise of one step of one sample."""
    digest = hashlib.blake2b(f"{seed} {sample} {step}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 1  # torch takes 63 bits
