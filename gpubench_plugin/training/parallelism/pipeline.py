"""Pipeline parallelism: stages of the model per rank, fed with microbatches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import sqrt
from typing import Any, ClassVar, Final, NoReturn

import torch
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleMulti, get_schedule_class

from gpubench_plugin.config.sections import DistributedSection, TrainingSection
from gpubench_plugin.core.errors import Unsupported, UsageProblem
from gpubench_plugin.precision.base import Precision
from gpubench_plugin.ranks.process_group import ProcessGroup
from gpubench_plugin.training.parallelism.base import Compile, Parallelism
from gpubench_plugin.workloads.base import Batch, Stages, Workload

Context = Callable[[], AbstractContextManager[object]]

STAGES_PER_RANK: Final[Mapping[str, int]] = {
    "GPipe": 1,
    "1F1B": 1,
    "Interleaved1F1B": 2,
    "ZBVZeroBubble": 2,
}
"""Number of stages per rank, by schedule."""


class LocalStages(nn.Module):
    """This rank's stages of `cut` by number, and the names of all parameters."""

    def __init__(self, cut: Stages, numbers: Sequence[int], compile: Compile | None):
        super().__init__()
        all_stages = nn.ModuleDict({str(n): stage for n, stage in enumerate(cut.modules)})
        self.parameter_names = tuple(
            f"stages.{name}" for name, p in all_stages.named_parameters() if p.requires_grad
        )
        self.count = len(cut.modules)
        self.boundary_shape = cut.between
        self.loss = cut.loss
        self.stages = nn.ModuleDict({str(n): cut.modules[n] for n in numbers})
        # Not registered: a compiled stage has the same parameters under other names.
        self.runs = {
            n: cut.modules[n] if compile is None else compile(cut.modules[n]) for n in numbers
        }

    def forward(self, *_: Any, **__: Any) -> NoReturn:
        """Raise Unsupported, since no rank has the whole model."""
        raise Unsupported(
            "pipeline: ranks hold stages for training; a forward pass alone is not supported"
        )


def _stage_numbers(schedule: str, rank: int, ranks: int) -> Sequence[int]:
    """Stage numbers of a rank: round-robin, or for ZBV forth and back."""
    if schedule == "ZBVZeroBubble":
        return rank, 2 * ranks - 1 - rank
    return range(rank, ranks * STAGES_PER_RANK[schedule], ranks)


@dataclass(eq=False, repr=False, kw_only=True)
class PipelinePasses:
    """Forward and backward passes of a batch by a torch schedule, in the precision's context.

    A trainer calls it instead of the loss and its backward pass. The first batch sets the shapes of
    microbatches.
    """

    module: LocalStages
    schedule: str
    microbatches: int
    group: ProcessGroup
    context: Context

    def __post_init__(self) -> None:
        self.parameter_names = self.module.parameter_names
        self._is_first = 0 in self.module.runs
        self._is_last = self.module.count - 1 in self.module.runs
        self._no_loss = torch.zeros((), device=self.group.device)
        self._schedule: Any = None

    def __call__(self, module: nn.Module, batch: Batch) -> Tensor:
        """Accumulate gradients of `batch`; return the scaled loss on the last stage, else 0."""
        if self._schedule is None:
            self._schedule = self._scheduled(batch)
        inputs = (batch.inputs,) if self._is_first else ()
        if not self._is_last:
            self._schedule.step(*inputs, return_outputs=False)
            return self._no_loss
        losses: list[Tensor] = []
        self._schedule.step(*inputs, target=batch.targets, losses=losses, return_outputs=False)
        return torch.stack([loss.detach() for loss in losses]).mean() * self.group.world.size

    def _scheduled(self, batch: Batch) -> Any:
        inputs = batch.inputs[: len(batch.inputs) // self.microbatches]
        stages = [self._stage(number, inputs) for number in self.module.runs]
        schedule: Any = get_schedule_class(self.schedule)
        takes_many = issubclass(schedule, PipelineScheduleMulti)
        return schedule(stages if takes_many else stages[0], self.microbatches, loss_fn=self._loss)

    def _stage(self, number: int, inputs: Tensor) -> PipelineStage:
        """Stage with known shapes, which torch would otherwise exchange as pickled objects."""
        own_stages, device = self.module, self.group.device
        module = own_stages.stages[str(number)]
        dtype = next(module.parameters()).dtype
        is_last = number == own_stages.count - 1
        if number > 0:
            shape = (len(inputs), *own_stages.boundary_shape)
            inputs = torch.zeros(shape, dtype=dtype, device=device, requires_grad=True)
        run = _Stage(own_stages.runs[number], self.context, None if is_last else dtype)
        with torch.no_grad():
            output = _Stage(module, self.context, run.dtype)(inputs)
        return PipelineStage(
            run,
            number,
            own_stages.count,
            device,
            input_args=(inputs,),
            output_args=(output.requires_grad_(),),
        )

    def _loss(self, output: Tensor, targets: Tensor) -> Tensor:
        with self.context():
            return self.module.loss(output, targets)


class _Stage(nn.Module):
    """Stage in the precision's autocast; casts its output to the next stage's `dtype`."""

    def __init__(self, stage: nn.Module, context: Context, dtype: torch.dtype | None):
        super().__init__()
        self.stage = stage
        self.context = context
        self.dtype = dtype

    def forward(self, inputs: Tensor) -> Tensor:
        with self.context():
            output: Tensor = self.stage(inputs)
        return output if self.dtype is None else output.to(self.dtype)


def microbatches(section: DistributedSection, *, stages: int, ranks: int, samples: int) -> int:
    """Number of microbatches: as configured, or the fewest that keep all `stages` busy.

    `samples` is the size of the batch of all `ranks`.

    Raises:
        UsageProblem: the configured number does not fit the batch or the schedule.
    """
    allowed = _allowed(section.pipeline_schedule, ranks=ranks, samples=samples)
    number = section.pipeline_microbatches
    if number is None:
        return next((n for n in allowed if n >= stages), allowed[-1])
    if number not in allowed:
        nearest = min(allowed, key=lambda n: abs(n - number))
        raise UsageProblem(
            f"distributed.pipeline_microbatches={number} is not supported by "
            f"{section.pipeline_schedule} with a batch of {samples} samples on {ranks} ranks (did "
            f"you mean {nearest}?); allowed: {', '.join(map(str, allowed))}"
        )
    return number


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
        """Empty: whether the batch can be cut into microbatches is all that is known before.

        Raises:
            UsageProblem: it cannot, as ``distributed.pipeline_microbatches`` says.
        """
        if ranks >= cls.least_ranks and training.batch_size != "auto":  # or it is unsupported
            microbatches(section, stages=1, ranks=ranks, samples=training.samples * ranks)
        return ""

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
            Unsupported: the workload does not define so many stages, or two share a parameter.
        """
        assert self._workload is not None  # configure() was called
        cut = self._workload.stages(module, self._stage_count)
        if cut is None:
            raise Unsupported(
                f"pipeline: {self._workload.section.name} does not define pipeline stages; "
                "use distributed.parallelism=ddp or fsdp2"
            )
        parameter_ids = [{id(p) for p in stage.parameters()} for stage in cut.modules]
        if sum(map(len, parameter_ids)) > len(set().union(*parameter_ids)):
            raise Unsupported(
                "pipeline: two stages share a parameter, so each would train its own copy"
            )
        world = self.group.world
        numbers = _stage_numbers(self.section.pipeline_schedule, world.rank, world.size)
        return LocalStages(cut, numbers, self._compile)

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
            group=self.group,
            context=lambda: precision.forward_context(device),
        )

    def gradient_norm(self, parameters: Iterable[nn.Parameter]) -> float:
        """Gradient norm over the stages of all ranks."""
        (mean,) = self.group.agreement.mean([super().gradient_norm(parameters) ** 2])
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
