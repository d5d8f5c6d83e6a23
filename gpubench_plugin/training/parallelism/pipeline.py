"""Pipeline parallelism: stages of the model per rank, fed with microbatches."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import nn

from gpubench_plugin.core.errors import Unsupported, UsageProblem
from gpubench_plugin.training.parallelism._stages import (
    STAGES_PER_RANK,
    LocalStages,
    PipelinePasses,
    stages_of,
)
from gpubench_plugin.training.parallelism.base import Parallelism

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpubench_plugin.config.sections import DistributedSection, TrainingSection
    from gpubench_plugin.precision.base import Precision
    from gpubench_plugin.workloads.base import Workload


def microbatches(section: DistributedSection, *, stages: int, ranks: int, samples: int) -> int:
    """Number of microbatches: as configured, or the fewest that keep all `stages` busy.

    `samples` is the size of the batch of all `ranks`.

    Raises:
        UsageProblem: the configured number does not fit the batch or the schedule.
    """
    if reason := _refusal(section, ranks=ranks, samples=samples):
        raise UsageProblem(reason)
    if section.pipeline_microbatches is not None:
        return section.pipeline_microbatches
    allowed = _allowed(section.pipeline_schedule, ranks=ranks, samples=samples)
    return next((n for n in allowed if n >= stages), allowed[-1])


def _refusal(section: DistributedSection, *, ranks: int, samples: int) -> str:
    schedule, number = section.pipeline_schedule, section.pipeline_microbatches
    allowed = _allowed(schedule, ranks=ranks, samples=samples)
    if number is None or number in allowed:
        return ""
    nearest = min(allowed, key=lambda n: abs(n - number))
    return (
        f"distributed.pipeline_microbatches={number} is not supported by {schedule} with a batch "
        f"of {samples} samples on {ranks} ranks (did you mean {nearest}?); allowed: "
        f"{', '.join(map(str, allowed))}"
    )


def _allowed(schedule: str, *, ranks: int, samples: int) -> list[int]:
    """Numbers of microbatches that divide the batch and that the schedule supports, ascending."""
    divisors = [n for n in range(1, samples + 1) if samples % n == 0]
    if schedule == "1F1B":
        return [n for n in divisors if n >= ranks]
    if schedule == "Interleaved1F1B":  # rounds of equal size
        return [n for n in divisors if n % max(1, n // ranks) == 0]
    return divisors


class PipelineParallel(Parallelism):
    """Stages and schedule of ``torch.distributed.pipelining``.

    GPipe and 1F1B have one stage per rank, Interleaved1F1B and ZBVZeroBubble two.

    Sources: https://docs.pytorch.org/docs/stable/distributed.pipelining.html; Huang et al., GPipe,
    2019, https://arxiv.org/abs/1811.06965; Narayanan et al., Efficient Large-Scale Language Model
    Training on GPU Clusters, 2021, https://arxiv.org/abs/2104.04473; Qi et al., Zero Bubble
    Pipeline Parallelism, 2023, https://arxiv.org/abs/2401.10241
    """

    name = "pipeline"
    where = "2 ranks or more; training of models that have stages: llama"
    least_ranks = 2
    shares_batch = True
    compiles_in_wrap = True
    refused_scopes: ClassVar[Mapping[str, str]] = {
        "blocks": "each stage is one compiled region",
        "step": "the schedule computes the loss, of each microbatch outside of the last stage",
    }

    _workload: Workload[Any] | None = None
    _microbatches = 1

    @classmethod
    def refusal(cls, section: DistributedSection, training: TrainingSection, *, ranks: int) -> str:
        """Reason if the batch cannot be cut into ``distributed.pipeline_microbatches``."""
        if ranks < cls.least_ranks or training.batch_size == "auto":  # unsupported
            return ""
        return _refusal(section, ranks=ranks, samples=training.samples * ranks)

    @property
    def _stage_count(self) -> int:
        return STAGES_PER_RANK[self.section.pipeline_schedule] * self.group.world.size

    def configure(self, workload: Workload[Any], training: TrainingSection) -> None:
        """Validate the schedule's requirements and choose the number of microbatches."""
        super().configure(workload, training)
        schedule, compile = self.section.pipeline_schedule, workload.section.compile
        if reason := _unsupported_reason(schedule, compile, training, self.group.backend):
            raise Unsupported(f"pipeline: {reason}")
        self._workload = workload
        self._microbatches = microbatches(
            self.section,
            stages=self._stage_count,
            ranks=self.group.world.size,
            samples=training.samples * self.group.world.size,
        )

    def wrap(self, module: nn.Module) -> nn.Module:
        """This rank's stages of `module`.

        Raises:
            Unsupported: the workload does not define so many stages.
        """
        assert self._workload is not None  # configure() was called
        cut = self._workload.stages(module, self._stage_count)
        if cut is None:
            raise Unsupported(
                f"pipeline: {self._workload.section.name} does not define pipeline stages; "
                "use distributed.parallelism=ddp or fsdp2"
            )
        return stages_of(cut, self.section.pipeline_schedule, self.group.world, self._compile)

    def passes(self, module: nn.Module, precision: Precision) -> PipelinePasses:
        """The schedule, which runs forward and backward passes of all microbatches."""
        device = self.group.device
        if precision.scaler(device, init_scale=1.0, growth_interval=1) is not None:
            raise Unsupported(
                "pipeline: a GradScaler would skip steps independently on each rank; use bf16"
            )
        assert isinstance(module, LocalStages)
        return PipelinePasses(
            module=module,
            schedule=self.section.pipeline_schedule,
            microbatches=self._microbatches,
            ranks=self.group.world.size,
            device=device,
            context=lambda: precision.forward_context(device),
        )

    def gradient_norm(self, parameters: Iterable[nn.Parameter]) -> float:
        """Gradient norm over the stages of all ranks."""
        local_norm = super().gradient_norm(parameters)
        (mean,) = self.group.agreement.mean([local_norm**2])
        return sqrt(mean * self.group.world.size)


def runs_in_a_v(backend: str) -> bool:
    """Whether torch runs ZBVZeroBubble, of which a rank has neighbouring stages, on `backend`.

    2.11 begins with messages to the neighbours of each stage, the own rank among them, which gloo
    refuses ("Pair is not connected"); 2.13 does not, 2.12 was not tried.
    """
    return backend != "gloo" or torch.__version__ >= "2.13"  # a TorchVersion


def _unsupported_reason(
    schedule: str, compile: str, training: TrainingSection, backend: str
) -> str | None:
    if training.accumulation_steps > 1:
        return (
            f"training.accumulation_steps={training.accumulation_steps}: a pipeline "
            "accumulates microbatches instead; set distributed.pipeline_microbatches and a "
            "larger batch"
        )
    if training.gradient_clipping is not None:
        return (
            f"training.gradient_clipping={training.gradient_clipping}: torch would clip by "
            "the norm of each rank's own stages; set null"
        )
    if compile in {"reduce-overhead", "max-autotune"}:
        return (
            f"model.compile={compile}: CUDA graphs would overwrite a stage's output before it "
            "is consumed; use default"
        )
    if compile != "none" and schedule == "ZBVZeroBubble":
        return f"{schedule}: torch cannot split the backward pass of a compiled stage; use none"
    if schedule == "ZBVZeroBubble" and not runs_in_a_v(backend):
        return f"{schedule}: on gloo torch sends to the own rank, which it cannot before 2.13"
    return None
