"""Stages of a pipeline on this rank, and their passes over a batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn

import torch
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleMulti, get_schedule_class

from gpubench_plugin.core.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from gpubench_plugin.ranks.world import World
    from gpubench_plugin.workloads.base import Batch, Stages

    Context = Callable[[], AbstractContextManager[object]]
    Compile = Callable[[nn.Module], nn.Module]

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


def stages_of(cut: Stages, schedule: str, world: World, compile: Compile | None) -> LocalStages:
    """Select the stages of this rank.

    Raises:
        Unsupported: two stages share a parameter, so each would train its own copy.
    """
    parameter_ids = [{id(p) for p in stage.parameters()} for stage in cut.modules]
    if sum(map(len, parameter_ids)) > len(set().union(*parameter_ids)):
        raise Unsupported(
            "pipeline: two stages share a parameter, so each would train its own copy"
        )
    return LocalStages(cut, _stage_numbers(schedule, world.rank, world.size), compile)


def _stage_numbers(schedule: str, rank: int, ranks: int) -> Sequence[int]:
    """Stage numbers of a rank: round-robin, or for ZBV forth and back."""
    if schedule == "ZBVZeroBubble":
        return rank, 2 * ranks - 1 - rank
    return range(rank, ranks * STAGES_PER_RANK[schedule], ranks)


@dataclass(eq=False, repr=False, kw_only=True)
class PipelinePasses:
    """Forward and backward passes of a batch by a torch schedule, in the precision's context.

    A trainer calls it instead of the loss and its backward pass. The first batch sets the shapes of
    microbatches. `parameter_names` are those of all stages on all ranks.
    """

    module: LocalStages
    schedule: str
    microbatches: int
    ranks: int
    device: torch.device
    context: Context

    def __post_init__(self) -> None:
        self.parameter_names = self.module.parameter_names
        self._is_first = 0 in self.module.runs
        self._is_last = self.module.count - 1 in self.module.runs
        self._no_loss = torch.zeros((), device=self.device)
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
        return torch.stack([loss.detach() for loss in losses]).mean() * self.ranks

    def _scheduled(self, batch: Batch) -> Any:
        inputs = batch.inputs[: len(batch.inputs) // self.microbatches]
        stages = [self._stage(number, inputs) for number in self.module.runs]
        schedule: Any = get_schedule_class(self.schedule)
        takes_many = issubclass(schedule, PipelineScheduleMulti)
        return schedule(stages if takes_many else stages[0], self.microbatches, loss_fn=self._loss)

    def _stage(self, number: int, inputs: Tensor) -> PipelineStage:
        """Stage with known shapes, which torch would otherwise exchange as pickled objects."""
        own_stages = self.module
        module = own_stages.stages[str(number)]
        dtype = next(module.parameters()).dtype
        is_last = number == own_stages.count - 1
        if number > 0:
            shape = (len(inputs), *own_stages.boundary_shape)
            inputs = torch.zeros(shape, dtype=dtype, device=self.device, requires_grad=True)
        run = _Stage(own_stages.runs[number], self.context, None if is_last else dtype)
        with torch.no_grad():
            output = _Stage(module, self.context, run.dtype)(inputs)
        return PipelineStage(
            run,
            number,
            own_stages.count,
            self.device,
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
