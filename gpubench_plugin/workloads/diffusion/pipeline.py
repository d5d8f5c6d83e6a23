"""Diffusion pipeline as a benchmark: samples pass through the ranks in sequence."""

from __future__ import annotations

from datetime import timedelta
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import torch

from gpubench_plugin.environment import synchronize, timed_s
from gpubench_plugin.errors import CorrectnessError, Unsupported
from gpubench_plugin.records import Check, Work
from gpubench_plugin.workloads.diffusion.denoising import Denoising, EventLog, logged
from gpubench_plugin.workloads.diffusion.schedulers import NoiseSchedule, steps_of
from gpubench_plugin.workloads.diffusion.transport import Header, Transport
from gpubench_plugin.workloads.unet_cond import UNetCond

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor, nn
    from torch import distributed as dist

    from gpubench_plugin.config import DiffusionSection
    from gpubench_plugin.precision import Precision
    from gpubench_plugin.records import Json
    from gpubench_plugin.workloads.base import Workload

    Log = Callable[[Mapping[str, object]], None]

_TIMES_ALONE: Final = 3
_LONG_ENOUGH_S: Final = 0.2
_MOST_TIMES_ALONE: Final = 50
"""How often the last rank does all steps by itself, and short ones for how long: the median counts.

A few calls of some milliseconds would be no measure for the many that the pipeline is timed by.
"""


class DenoisingPipeline:
    """Denoises `samples` per call of :meth:`step`, each rank running its steps of each sample.

    While a sample is on its way to the next rank, this one works on the following sample.

    `steps` are those of every rank, `latents` (N×C×H×W) the noise that each sample begins with.
    The `transport` is None on a single rank; `keep` is told what this rank did in one call.
    """

    def __init__(
        self,
        *,
        denoising: Denoising,
        workload: Workload[Any],
        steps: Sequence[range],
        rank: int,
        latents: Tensor,
        transport: Transport | None,
        barrier: Callable[[], object],
        keep: Callable[[Sequence[Json]], None],
    ):
        self._denoising = denoising
        self._workload = workload
        self._steps_by_rank = steps
        self._steps = steps[rank]
        self._rank = rank
        self._latents: tuple[Tensor, ...] = latents.split(1)
        self._transport = transport
        self._barrier = barrier
        self._on_events = keep
        self.calls = 0
        self._outputs: list[Tensor] = []
        self._expected: list[Tensor] = []

    def step(self) -> None:
        """Run this rank's steps of all samples (hot path)."""
        self._run(None)

    def meet(self) -> None:
        """Untimed barrier between calls, or the first rank would run ahead and hide the filling."""
        synchronize(self._latents[0].device)
        self._barrier()

    def prepare(self, log: Log) -> Check:
        """Compare bitwise with the last rank computing alone, and time that.

        Raises:
            CorrectnessError: an output differs, or is not finite, or a message is a wrong one.
            MeasurementError: a message did not come.
        """
        self.meet()
        facts = {"first_step_s": timed_s(self.step, self._latents[0].device)}
        self.meet()
        self._run_logged(log)
        if self._is_last:
            self._expected, alone_s = self._run_on_one_rank()
            self._require_expected()
        if len(self._steps_by_rank) > 1:
            # What a fact of all ranks is, is the largest: the last rank's.
            facts["one_process_s"] = alone_s if self._is_last else 0.0
            facts["ideal_speed_up"] = ideal_speed_up(self._steps_by_rank, len(self._latents))
        return Check(
            correctness={
                "bitwise_equal_to_one_process": True,
                "verified_samples": len(self._latents),
                "steps_of_ranks": [
                    [rank_steps.start, rank_steps.stop] for rank_steps in self._steps_by_rank
                ],
            },
            facts=facts,
        )

    def begin(self) -> None:
        """Clear the outputs, which the timed calls must produce again."""
        self._outputs = []

    def finish(self) -> Mapping[str, float]:
        """No further facts.

        Raises:
            CorrectnessError: what the last timed call left is not what the check did, or nothing.
        """
        if self._is_last:
            outputs, samples = len(self._outputs), len(self._expected)
            if outputs != samples:
                raise CorrectnessError(
                    f"the timed calls denoised {outputs} instead of {samples} samples"
                )
            self._require_expected()
        return {}

    def work(self) -> Work:
        """This rank's share of the samples; shares add up to their number."""
        return Work(samples=len(self._latents) * len(self._steps) / self._total)

    def flops_step(self) -> None:
        """All evaluations of one call on this rank as one fake batch."""
        size = len(self._latents) * len(self._steps)
        workload = self._workload.for_fake_tensors()
        with torch.no_grad():
            module = workload.build().eval()
            batch = workload.synthetic_batch(size, device=torch.device("cpu"))
            workload.forward(module, batch)

    @property
    def _total(self) -> int:
        return self._steps_by_rank[-1].stop

    @property
    def _is_last(self) -> bool:
        return self._rank == len(self._steps_by_rank) - 1

    def _run(self, log: EventLog | None) -> None:
        self.calls += 1
        outputs = []
        with torch.inference_mode():
            for sample in range(len(self._latents)):
                latents = self._received(sample, log)
                latents = self._denoising(latents, sample=sample, steps=self._steps, log=log)
                if self._is_last:
                    outputs.append(latents)
                else:
                    self._send(latents, sample, log)
            if self._transport is not None:
                with logged(log, "sent"):
                    self._transport.flush()
        self._outputs = outputs

    def _received(self, sample: int, log: EventLog | None) -> Tensor:
        """The sample from the previous rank; on the first rank, its initial latents."""
        if self._transport is None or self._rank == 0:
            return self._latents[sample]
        header = self._header(sample, self._steps.start, receiver=self._rank)
        with logged(log, "receive", **_header_json(header)):
            return self._transport.receive(header)

    def _send(self, latents: Tensor, sample: int, log: EventLog | None) -> None:
        assert self._transport is not None, "a single rank is also the last one"
        header = self._header(sample, self._steps.stop, receiver=self._rank + 1)
        with logged(log, "send", **_header_json(header)):
            self._transport.send(latents, header)

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

    def _run_logged(self, log: Log) -> None:
        """Run one call with logging: all events to this rank's file, sums to the journal."""
        event_log = EventLog(self._latents[0].device)
        try:
            self._run(event_log)
        finally:  # also of a call that failed: there they are needed most
            about = {"steps": [self._steps.start, self._steps.stop], "samples": len(self._latents)}
            self._on_events([{"event": "pipeline", **about}, *event_log.events])
        seconds_by_kind = {
            f"{kind}_s": sum(e["duration_s"] for e in event_log.events if e["event"] == kind)
            for kind in ("receive", "step", "send", "sent")
        }
        log({"event": "pipeline", "rank": self._rank, **about, **seconds_by_kind})

    def _run_on_one_rank(self) -> tuple[list[Tensor], float]:
        """All samples through all steps on this rank alone, with the seconds taken."""
        all_steps, lengths_s = range(self._total), list[float]()
        while not self._timed_enough(lengths_s):
            started = perf_counter()
            with torch.inference_mode():
                outputs = [
                    self._denoising(latents, sample=sample, steps=all_steps)
                    for sample, latents in enumerate(self._latents)
                ]
            synchronize(outputs[0].device)
            lengths_s.append(perf_counter() - started)
        return outputs, median(lengths_s)

    def _timed_enough(self, lengths_s: Sequence[float]) -> bool:
        """Whether enough repetitions were timed; one suffices for a single rank."""
        if len(self._steps_by_rank) == 1:
            return bool(lengths_s)
        is_long_enough = sum(lengths_s) >= _LONG_ENOUGH_S or len(lengths_s) >= _MOST_TIMES_ALONE
        return is_long_enough and len(lengths_s) >= _TIMES_ALONE

    def _require_expected(self) -> None:
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


def ideal_speed_up(steps: Sequence[range], samples: int) -> float:
    """Ideal speed-up over one process with free communication.

    The first sample goes through all ranks, each other one follows as soon as the slowest rank
    lets it: with M samples on w ranks of equal steps that is M·w/(M + w - 1), as for the
    micro-batches of Huang et al. 2018 (https://arxiv.org/abs/1811.06965), section 2.3.
    """
    lengths = [len(rank_steps) for rank_steps in steps]
    return samples * sum(lengths) / (sum(lengths) + (samples - 1) * max(lengths))


def _header_json(header: Header) -> Json:
    size = header.dtype.itemsize * torch.Size(header.shape).numel()
    return {
        "sample": header.sample,
        "step": header.step,
        "sender": header.sender,
        "receiver": header.receiver,
        "bytes": size,
    }


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
    on_events: Callable[[Sequence[Json]], None],
) -> DenoisingPipeline:
    """Build this rank's part of the pipeline of `section`.

    Noise and text of every sample are drawn on the host from `seed`, the same on every rank. Of
    `world_size` ranks, whose default process group has that `backend`, no one returns from
    `barrier` before all have called it; `hosts` is their gloo group, None of a single rank.

    Raises:
        Unsupported: the workload is no U-Net under a text, the scheduler's steps cannot be split
            or do not divide among the ranks, or diffusers is not installed.
    """
    if not isinstance(workload, UNetCond):
        name = workload.section.name
        raise Unsupported(f"model.name={name} has no denoising steps; allowed: diffusion")
    schedule = NoiseSchedule(
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
    initial_batch = workload.synthetic_batch(
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
        texts=initial_batch.context[-1].to(device),
        seed=seed,
    )
    return DenoisingPipeline(
        denoising=denoising,
        workload=workload,
        steps=steps,
        rank=rank,
        latents=(initial_batch.targets.contiguous() * schedule.initial_scale).to(device),
        transport=_transport(section, device, backend, hosts) if world_size > 1 else None,
        barrier=barrier,
        keep=on_events,
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
