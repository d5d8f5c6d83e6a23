"""Diffusion pipeline as a benchmark: samples pass through the ranks in sequence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any, Final

import torch
from torch import Tensor, nn

from gpubench_plugin.config.sections import DiffusionSection
from gpubench_plugin.core.errors import CorrectnessError, Unsupported
from gpubench_plugin.core.events import PipelineEvent
from gpubench_plugin.core.records import Check, Json, Work
from gpubench_plugin.environment.devices import synchronize, timed_s
from gpubench_plugin.precision.base import Precision
from gpubench_plugin.ranks.process_group import ProcessGroup
from gpubench_plugin.workloads.base import Workload, run_fake_step
from gpubench_plugin.workloads.diffusion.denoising import (
    Denoising,
    EventLog,
    NoiseSchedule,
    logged,
    steps_by_rank,
)
from gpubench_plugin.workloads.diffusion.transport import Header, Transport
from gpubench_plugin.workloads.unet_cond import UNetCond

Log = Callable[[Mapping[str, object]], None]

# Repetitions of all steps on the last rank, whose median is the time of one process: as long as a
# short measurement, since a few calls of some milliseconds are too noisy.
_MIN_REPETITIONS: Final = 3
_MAX_REPETITIONS: Final = 50
_MIN_TOTAL_S: Final = 0.2

# Seconds kept for reporting a message that did not arrive; of less than ten, half. Rank zero has
# as long to report a hang under torchrun.
_REPORT_S: Final = 5.0


@dataclass(eq=False, repr=False, kw_only=True)  # pytest prints what a failing test gets
class DenoisingPipeline:
    """Denoises all samples per call of :meth:`step`, each rank running its steps of each sample.

    While a sample is sent to the next rank, this one works on the following sample.
    `steps_by_rank` are the steps of every rank, `latents` (N×C×H×W) the initial noise. `transport`
    is None on a single rank. `on_events` gets what this rank did: before each untimed call its
    number, after it its events, and of a call that failed, timed or not, the error.
    """

    denoising: Denoising
    steps_by_rank: Sequence[range]
    rank: int
    latents: Tensor
    transport: Transport | None
    barrier: Callable[[], object]
    on_events: Callable[[Sequence[Json]], None]
    calls: int = field(default=0, init=False)
    _outputs: list[Tensor] = field(default_factory=list, init=False)
    _expected: list[Tensor] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self._steps = self.steps_by_rank[self.rank]
        self._latents: tuple[Tensor, ...] = self.latents.split(1)
        self._total = self.steps_by_rank[-1].stop
        self._is_last = self.rank == len(self.steps_by_rank) - 1

    def step(self) -> None:
        """Run this rank's steps of all samples (hot path)."""
        try:
            self._run(None)
        except Exception as error:
            self.on_events([self._call_event(self.calls), _failure(error)])
            raise

    def meet(self) -> None:
        """Untimed barrier between calls, or the first rank would hide the pipeline fill."""
        synchronize(self.latents.device)
        self.barrier()

    def prepare(self, log: Log) -> Check:
        """Compare bitwise with the last rank computing alone, and time that.

        Raises:
            CorrectnessError: an output differs or is not finite, or a message is wrong.
            LostMessage: a message did not arrive.
        """
        self.meet()
        with self._logged_call(None) as first_call:  # no waits for the device: it is timed
            first_step_s = timed_s(partial(self._run, first_call), self.latents.device)
        facts = {"first_step_s": first_step_s}
        self.meet()
        with self._logged_call(self.latents.device) as event_log:
            self._run(event_log)
        steps = (self._steps.start, self._steps.stop)
        event = PipelineEvent(
            call=self.calls,
            rank=self.rank,
            steps=steps,
            samples=len(self._latents),
            **_durations(event_log),
        )
        log(event.line())
        if self._is_last:
            self._expected, one_process_s = self._run_on_one_rank()
            self._require_expected()
        if len(self.steps_by_rank) > 1:
            # Of a fact the largest over ranks is recorded: the last rank's.
            facts["one_process_s"] = one_process_s if self._is_last else 0.0
            facts["ideal_speed_up"] = ideal_speed_up(self.steps_by_rank, len(self._latents))
        return Check(
            correctness={
                "bitwise_equal_to_one_process": True,
                "verified_samples": len(self._latents),
                "steps_of_ranks": [[steps.start, steps.stop] for steps in self.steps_by_rank],
            },
            facts=facts,
        )

    def begin(self) -> None:
        """Clear the outputs, which the timed calls must produce again."""
        self._outputs = []

    def finish(self) -> Mapping[str, float]:
        """No further facts.

        Raises:
            CorrectnessError: the last timed call's outputs are missing, or not the check's.
        """
        if self._is_last:
            self._require_expected()
        return {}

    def work(self) -> Work:
        """This rank's share of the samples; shares add up to their number."""
        return Work(samples=len(self._latents) * len(self._steps) / self._total)

    def flops_step(self) -> None:
        """All evaluations of one call on this rank as one fake batch."""
        size = len(self._latents) * len(self._steps)
        run_fake_step(self.denoising.workload, samples=size, backward=False)

    def _run(self, log: EventLog | None) -> None:
        self.calls += 1
        outputs = []
        with torch.inference_mode():
            for sample in range(len(self._latents)):
                latents = self._receive(sample, log)
                latents = self.denoising(latents, sample=sample, steps=self._steps, log=log)
                if self._is_last:
                    outputs.append(latents)
                else:
                    self._send(latents, sample, log)
            if self.transport is not None:
                with logged(log, "sent"):
                    self.transport.flush()
        self._outputs = outputs

    def _receive(self, sample: int, log: EventLog | None) -> Tensor:
        """The sample from the previous rank; on the first rank, its initial latents."""
        if self.transport is None or self.rank == 0:
            return self._latents[sample]
        header = self._header(sample, self._steps.start, receiver=self.rank)
        with logged(log, "receive", **header.facts):
            return self.transport.receive(header)

    def _send(self, latents: Tensor, sample: int, log: EventLog | None) -> None:
        assert self.transport is not None, "a single rank is also the last one"
        header = self._header(sample, self._steps.stop, receiver=self.rank + 1)
        with logged(log, "send", **header.facts):
            self.transport.send(latents, header)

    def _header(self, sample: int, step: int, *, receiver: int) -> Header:
        latents = self._latents[sample]
        return Header(
            call=self.calls,
            sample=sample,
            step=step,
            sender=receiver - 1,
            receiver=receiver,
            dtype=latents.dtype,
            shape=tuple(latents.shape),
        )

    @contextmanager
    def _logged_call(self, device: torch.device | None) -> Iterator[EventLog]:
        """Log of one call, also of one that fails: there it is needed most.

        What call it is stands in this rank's file before it begins, since it may never end.
        """
        self.on_events([self._call_event(self.calls + 1)])
        event_log = EventLog(device)
        try:
            yield event_log
        except Exception as error:
            self.on_events([*event_log.events, _failure(error)])
            raise
        self.on_events(event_log.events)

    def _call_event(self, number: int) -> Json:
        steps = [self._steps.start, self._steps.stop]
        return {"event": "pipeline", "call": number, "steps": steps, "samples": len(self._latents)}

    def _run_on_one_rank(self) -> tuple[list[Tensor], float]:
        """Outputs of all samples and steps on this rank alone, and the median duration."""
        all_steps, durations_s = range(self._total), list[float]()
        while not self._timed_enough(durations_s):
            started = perf_counter()
            with torch.inference_mode():
                outputs = [
                    self.denoising(latents, sample=sample, steps=all_steps)
                    for sample, latents in enumerate(self._latents)
                ]
            synchronize(outputs[0].device)
            durations_s.append(perf_counter() - started)
        return outputs, median(durations_s)

    def _timed_enough(self, durations_s: Sequence[float]) -> bool:
        """Whether enough repetitions were timed; one suffices for a single rank."""
        repetitions = len(durations_s)
        if len(self.steps_by_rank) == 1:
            return repetitions > 0
        is_long_enough = sum(durations_s) >= _MIN_TOTAL_S or repetitions >= _MAX_REPETITIONS
        return is_long_enough and repetitions >= _MIN_REPETITIONS

    def _require_expected(self) -> None:
        outputs, samples = len(self._outputs), len(self._expected)
        if outputs != samples:
            raise CorrectnessError(
                f"the timed calls denoised {outputs} instead of {samples} samples"
            )
        for sample, expected in enumerate(self._expected):
            actual = self._outputs[sample]
            if not bool(expected.isfinite().all()):
                raise CorrectnessError(f"sample {sample}: the denoised latents are not finite")
            if not torch.equal(actual, expected):
                mismatch_count = int((actual != expected).sum())
                error = float((actual - expected).abs().max())
                raise CorrectnessError(
                    f"sample {sample}: {mismatch_count} of {actual.numel()} values differ "
                    f"from a single process, by at most {error:g}"
                )


def _failure(error: Exception) -> Json:
    return {"event": "failed", "error": f"{type(error).__name__}: {error}"}


def _durations(event_log: EventLog) -> dict[str, float]:
    """Seconds of the events of each kind together."""
    return {
        f"{kind}_s": sum(e["duration_s"] for e in event_log.events if e["event"] == kind)
        for kind in ("receive", "step", "send", "sent")
    }


def ideal_speed_up(steps: Sequence[range], samples: int) -> float:
    """Ideal speed-up over one process with free communication.

    The first sample passes all ranks, the others follow at the pace of the slowest rank: with M
    samples on w ranks of equal steps that is M·w/(M + w - 1), as for the micro-batches of Huang et
    al. 2018 (https://arxiv.org/abs/1811.06965), section 2.3.
    """
    lengths = [len(rank_steps) for rank_steps in steps]
    return samples * sum(lengths) / (sum(lengths) + (samples - 1) * max(lengths))


def build_pipeline(
    module: nn.Module,
    workload: Workload[Any],
    *,
    section: DiffusionSection,
    seed: int,
    precision: Precision,
    group: ProcessGroup,
    remaining_s: Callable[[], float],
    on_events: Callable[[Sequence[Json]], None],
) -> DenoisingPipeline:
    """Build this rank's part of the pipeline of `section`.

    Noise and text of every sample are drawn on the host from `seed`, the same on every rank.
    `remaining_s` gives the seconds until the benchmark times out.

    Raises:
        Unsupported: the workload is no text-conditioned U-Net, the scheduler's steps cannot be
            split or divided among the ranks, or diffusers is not installed.
    """
    if not isinstance(workload, UNetCond):
        name = workload.section.name
        raise Unsupported(f"model.name={name} has no denoising steps; allowed: diffusion")
    device = group.device
    schedule = NoiseSchedule(
        section.scheduler,
        steps=section.denoising_steps,
        beta_schedule=workload.beta_schedule,
        device=device,
    )
    rank, world_size = group.world.rank, group.world.size
    steps = steps_by_rank(
        world_size,
        total=schedule.total,
        remainder=section.remainder,
        evaluations_per_step=schedule.evaluations_per_step,
    )
    initial_batch = workload.synthetic_batch(
        section.samples, device=torch.device("cpu"), generator=torch.Generator().manual_seed(seed)
    )
    transport = None
    if world_size > 1:
        stated_s = section.receive_timeout_s
        transport = Transport(
            group=group,
            timeout_s=lambda: stated_s or longest_wait_s(remaining_s()),
            timeout_key="diffusion.receive_timeout_s"
            f"{'' if stated_s else ': the rest of the timeout'}",
            steps=steps[rank],
        )
    denoising = Denoising(
        module=module,
        workload=workload,
        schedule=schedule,
        precision=precision,
        texts=initial_batch.context[-1].to(device),
        seed=seed,
    )
    return DenoisingPipeline(
        denoising=denoising,
        steps_by_rank=steps,
        rank=rank,
        latents=(initial_batch.targets.contiguous() * schedule.initial_scale).to(device),
        transport=transport,
        barrier=group.agreement.barrier,
        on_events=on_events,
    )


def longest_wait_s(remaining_s: float) -> float:
    """Timeout, in seconds, of a message of a benchmark that times out in `remaining_s`.

    It leaves the rank time to report what it waited for. After its end, as this rank sees it, the
    benchmark is still running only if the process was stopped, and for how long is not known.
    """
    return max(remaining_s - _REPORT_S, remaining_s / 2) if remaining_s > 0 else _REPORT_S
