"""The pipeline as a thing to measure: samples follow each other through the ranks' steps."""

from __future__ import annotations

from datetime import timedelta
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import torch

from gpubench_plugin.environment import synchronize, timed_s
from gpubench_plugin.errors import CorrectnessError, Unsupported
from gpubench_plugin.records import Check, Work
from gpubench_plugin.workloads.diffusion.denoising import Denoising, EventLog, noted
from gpubench_plugin.workloads.diffusion.schedulers import Schedule, steps_of
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


class Pipeline:
    """Denoises `samples` in one call of :meth:`step`: every rank its steps of one after the other.

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
        self._all = steps
        self._own = steps[rank]
        self._rank = rank
        self._latents: tuple[Tensor, ...] = latents.split(1)
        self._transport = transport
        self._barrier = barrier
        self._keep = keep
        self.calls = 0
        self._outputs: list[Tensor] = []
        self._expected: list[Tensor] = []

    def step(self) -> None:
        """All samples through all steps, this rank's part of it: the hot path."""
        self._run(None)

    def meet(self) -> None:
        """Before a call, untimed: nobody begins it before all have ended the one before.

        Else the first rank would run ahead, and the filling of the pipeline be hidden.
        """
        synchronize(self._latents[0].device)
        self._barrier()

    def prepare(self, log: Log) -> Check:
        """Compare every bit with what the last rank computes alone, and time that.

        Raises:
            CorrectnessError: an output differs, or is not finite, or a message is a wrong one.
            MeasurementError: a message did not come.
        """
        self.meet()
        facts = {"first_step_s": timed_s(self.step, self._latents[0].device)}
        self.meet()
        self._log_a_call(log)
        if self._is_last:
            self._expected, alone_s = self._alone()
            self._require_expected()
        if len(self._all) > 1:
            # What a fact of all ranks is, is the largest: the last rank's.
            facts["one_process_s"] = alone_s if self._is_last else 0.0
            facts["ideal_speed_up"] = ideal_speed_up(self._all, len(self._latents))
        return Check(
            correctness={
                "bitwise_equal_to_one_process": True,
                "verified_samples": len(self._latents),
                "steps_of_ranks": [[own.start, own.stop] for own in self._all],
            },
            facts=facts,
        )

    def begin(self) -> None:
        """Forget what came out: the timed calls have to do it again."""
        self._outputs = []

    def finish(self) -> Mapping[str, float]:
        """No facts but those of :meth:`prepare`.

        Raises:
            CorrectnessError: what the last timed call left is not what the check did, or nothing.
        """
        if self._is_last:
            outputs, samples = len(self._outputs), len(self._expected)
            if outputs != samples:
                raise CorrectnessError(f"the timed calls denoised {outputs} of {samples} samples")
            self._require_expected()
        return {}

    def work(self) -> Work:
        """This rank's share of the samples: the shares of all add up to their number."""
        return Work(samples=len(self._latents) * len(self._own) / self._total)

    def flops_step(self) -> None:
        """All evaluations of one call on this rank, as one batch of tensors without data."""
        size = len(self._latents) * len(self._own)
        workload = self._workload.without_data()
        with torch.no_grad():
            module = workload.build().eval()
            batch = workload.synthetic_batch(size, device=torch.device("cpu"))
            workload.forward(module, batch)

    @property
    def _total(self) -> int:
        return self._all[-1].stop

    @property
    def _is_last(self) -> bool:
        return self._rank == len(self._all) - 1

    def _run(self, log: EventLog | None) -> None:
        self.calls += 1
        outputs = []
        with torch.inference_mode():
            for sample in range(len(self._latents)):
                latents = self._received(sample, log)
                latents = self._denoising(latents, sample=sample, steps=self._own, log=log)
                if self._is_last:
                    outputs.append(latents)
                else:
                    self._send(latents, sample, log)
            if self._transport is not None:
                with noted(log, "sent"):
                    self._transport.flush()
        self._outputs = outputs

    def _received(self, sample: int, log: EventLog | None) -> Tensor:
        """What the rank before made of the sample; on the first rank, what it begins with."""
        if self._transport is None or self._rank == 0:
            return self._latents[sample]
        header = self._header(sample, self._own.start, receiver=self._rank)
        with noted(log, "receive", **_told(header)):
            return self._transport.receive(header)

    def _send(self, latents: Tensor, sample: int, log: EventLog | None) -> None:
        assert self._transport is not None, "a single rank is the last"
        header = self._header(sample, self._own.stop, receiver=self._rank + 1)
        with noted(log, "send", **_told(header)):
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

    def _log_a_call(self, log: Log) -> None:
        """One call whose events are kept: by this rank all, in the journal their sums."""
        noted = EventLog(self._latents[0].device)
        try:
            self._run(noted)
        finally:  # also of a call that failed: there they are needed most
            about = {"steps": [self._own.start, self._own.stop], "samples": len(self._latents)}
            self._keep([{"event": "pipeline", **about}, *noted.events])
        spent = {
            f"{kind}_s": sum(e["duration_s"] for e in noted.events if e["event"] == kind)
            for kind in ("receive", "step", "send", "sent")
        }
        log({"event": "pipeline", "rank": self._rank, **about, **spent})

    def _alone(self) -> tuple[list[Tensor], float]:
        """All samples through all steps on this rank alone, and the seconds that takes."""
        every, lengths_s = range(self._total), list[float]()
        while not self._timed_enough(lengths_s):
            began = perf_counter()
            with torch.inference_mode():
                outputs = [
                    self._denoising(latents, sample=sample, steps=every)
                    for sample, latents in enumerate(self._latents)
                ]
            synchronize(outputs[0].device)
            lengths_s.append(perf_counter() - began)
        return outputs, median(lengths_s)

    def _timed_enough(self, lengths_s: Sequence[float]) -> bool:
        """Once is enough where there is nothing to compare with."""
        if len(self._all) == 1:
            return bool(lengths_s)
        long = sum(lengths_s) >= _LONG_ENOUGH_S or len(lengths_s) >= _MOST_TIMES_ALONE
        return long and len(lengths_s) >= _TIMES_ALONE

    def _require_expected(self) -> None:
        for sample, expected in enumerate(self._expected):
            found = self._outputs[sample]
            if not bool(expected.isfinite().all()):
                raise CorrectnessError(f"sample {sample}: the denoised latents are not finite")
            if not torch.equal(found, expected):
                different = int((found != expected).sum())
                error = float((found - expected).abs().max())
                raise CorrectnessError(
                    f"sample {sample}: {different} of {found.numel()} values differ from those of "
                    f"one process, by {error:g} at most"
                )


def ideal_speed_up(steps: Sequence[range], samples: int) -> float:
    """How much faster than one process the ranks are where sending takes no time.

    The first sample goes through all ranks, each other one follows as soon as the slowest rank
    lets it: with M samples on w ranks of equal steps that is M·w/(M + w - 1), as for the
    micro-batches of Huang et al. 2018 (https://arxiv.org/abs/1811.06965), section 2.3.
    """
    lengths = [len(own) for own in steps]
    return samples * sum(lengths) / (sum(lengths) + (samples - 1) * max(lengths))


def _told(header: Header) -> Json:
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
