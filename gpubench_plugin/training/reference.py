"""The first steps of a training beside the same steps in plain fp32.

The reference has the same weights, batches, optimizer and random numbers, and nothing else of what
is measured: no autocast, no GradScaler, no TF32, no compiler, no wrapper, and not the trainer's
code that accumulates, clips and updates. Where several ranks train
one model, each computes the gradients of its own batches, and they are averaged by all_reduce,
which is right as well where the ranks share one batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from math import hypot, isfinite
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import distributed as dist
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from gpubench_plugin import catalog
from gpubench_plugin.errors import CorrectnessError
from gpubench_plugin.records import Check
from gpubench_plugin.training.bands import band_of
from gpubench_plugin.training.compile import EAGER
from gpubench_plugin.training.model import build_model
from gpubench_plugin.training.seeding import RandomState
from gpubench_plugin.training.state import return_free_memory

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

    from gpubench_plugin.config import MeasureSection, TrainingSection
    from gpubench_plugin.training.bands import Band
    from gpubench_plugin.training.check import WatchedStep
    from gpubench_plugin.training.protocols import Agreement
    from gpubench_plugin.workloads import Batch, Workload

_DROPOUT: Final = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)


class Reference:
    """Trains `workload` again as plainly as can be, and compares.

    `section` builds the model, `seed` draws its weights. `precision` names what is measured, and
    `compute_dtypes` what it computes in and reduces gradients in. `averaging` says that the ranks
    train one model together, `shares_batch` that they divide it, all on the same batch.
    """

    def __init__(
        self,
        *,
        workload: Workload[Any],
        training: TrainingSection,
        measure: MeasureSection,
        precision: str,
        compute_dtypes: Sequence[str],
        seed: int,
        device: torch.device,
        agreement: Agreement,
        averaging: bool,
        shares_batch: bool = False,
    ):
        self._workload = workload
        self._training = training
        self._measure = measure
        self._band = partial(
            band_of, precision=precision, compute_dtypes=compute_dtypes, measure=measure
        )
        self._seed = seed
        self._device = device
        self._agreement = agreement
        self._averaging = averaging and agreement.world_size > 1
        self._shares_batch = shares_batch

    @property
    def steps(self) -> int:
        """How many steps are compared."""
        return self._measure.check_steps

    def compare(self, watched: Sequence[WatchedStep], *, start: RandomState) -> Check:
        """The errors of what was `watched` from the first step on, which began in state `start`.

        The random generators are left as they were, and nothing the reference took stays in
        memory. A step that a GradScaler skipped has no norm to compare, and the reference skips
        its update, too. Every rank must call it.

        Raises:
            CorrectnessError: an error is beyond the band, or the reference is not finite.
        """
        losses, norms, skipped = self._mean(
            [s.loss for s in watched],
            [s.gradient_norm for s in watched],
            [float(s.skipped) for s in watched],
        )
        now = RandomState.capture(self._device)
        start.restore(self._device)
        try:
            with catalog.load("precision", "fp32")().switches():
                found = self._train(watched)
        finally:
            now.restore(self._device)
            return_free_memory(self._device)
        if isinstance(found, str):
            return Check(correctness={"reference": {"not_compared": found}})
        loss_error, norm_error = _largest_errors(
            _Compared(
                name="loss",
                measured=losses,
                reference=found.losses,
                absent=[False] * len(losses),
                band=found.band.loss,
                key="measure.check_loss_band",
            ),
            _Compared(
                name="gradient norm",
                measured=norms,
                reference=found.gradient_norms,
                absent=[share > 0 for share in skipped],
                band=found.band.gradient_norm,
                key="measure.check_gradient_band",
            ),
        )
        return Check(
            correctness={
                "reference": {
                    "steps": len(watched),
                    "loss_error": loss_error,
                    "loss_band": found.band.loss,
                    "gradient_norm_error": norm_error,
                    "gradient_band": found.band.gradient_norm,
                    "losses": found.losses,
                    "gradient_norms": found.gradient_norms,
                }
            },
            facts={"loss_error": loss_error, "gradient_norm_error": norm_error},
        )

    def _train(self, watched: Sequence[WatchedStep]) -> _Trained | str:
        """The reference's steps; or why there is nothing to compare with."""
        module = self._build()
        if reason := self._incomparable(module):
            return reason
        updates = _PlainUpdates(module, self._training, self._device)
        own_losses, own_norms = [], []
        for step in watched:
            own_losses.append(self._backward(module, step.batches))
            if self._averaging:
                _average_gradients(module, self._agreement.world_size)
            own_norms.append(updates.gradient_norm())
            updates.update(skipped=step.skipped)
        losses, norms = self._mean(own_losses, own_norms)
        return _Trained(losses=losses, gradient_norms=norms, band=self._band(module))

    def _build(self) -> nn.Module:
        return build_model(
            self._workload,
            section=self._workload.section.model_copy(update=EAGER),
            seed=self._seed,
            device=self._device,
            precision=catalog.load("precision", "fp32")(),
        ).train()

    def _incomparable(self, module: nn.Module) -> str | None:
        """Why the measured model computes something else by design."""
        dropping = any(isinstance(m, _DROPOUT) and m.p > 0 for m in module.modules())
        if dropping and self._workload.section.compile != "none":
            return "compiled dropout draws other random numbers; set its rate to 0 to compare"
        if dropping and self._shares_batch:
            return "ranks that divide a model draw dropout apart; set its rate to 0 to compare"
        if self._shares_batch and any(isinstance(m, _BatchNorm) for m in module.modules()):
            return "ranks that divide a model may normalise parts of the batch"
        return None

    def _backward(self, module: nn.Module, batches: Sequence[Batch]) -> float:
        """Add the gradients of the mean loss of `batches`, which is returned."""
        losses = []
        for batch in batches:
            loss = self._workload.loss(module, _in_fp32(batch)) / len(batches)
            loss.backward()
            losses.append(float(loss.detach()))
        return sum(losses)

    def _mean(self, *columns: Sequence[float]) -> list[list[float]]:
        """Each value of equally long columns as the mean over the ranks: all judge the same."""
        means = self._agreement.mean([value for column in columns for value in column])
        length = len(columns[0])
        return [means[at : at + length] for at in range(0, len(means), length)]


class _PlainUpdates:
    """Clipping, optimizer and schedule straight from torch: no code of what is judged."""

    def __init__(self, module: nn.Module, training: TrainingSection, device: torch.device):
        self._parameters = [p for p in module.parameters() if p.requires_grad]
        builder = catalog.load("optimizers", training.optimizer)
        # A fused optimizer is called for skipped steps, too, and the schedule moves with its calls.
        self._moves_when_skipped: bool = builder(training, device).fused
        unfused = training.model_copy(update={"fused": False})
        self._optimizer: Optimizer = builder(unfused, device).build(self._parameters)
        schedule = catalog.load("schedulers", training.scheduler)(training.schedule_steps)
        self._scheduler: LRScheduler | None = schedule.build(self._optimizer)
        self._clipping = training.gradient_clipping

    def gradient_norm(self) -> float:
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        return hypot(*(float(torch.linalg.vector_norm(g)) for g in gradients))

    def update(self, *, skipped: bool) -> None:
        """Use up the gradients; of a step that is `skipped` for nothing."""
        if skipped:
            self._optimizer.zero_grad(set_to_none=True)
        elif self._clipping is not None:
            nn.utils.clip_grad_norm_(self._parameters, self._clipping)
        if self._moves_when_skipped or not skipped:
            self._optimizer.step()  # without gradients it changes nothing
            if self._scheduler is not None:
                self._scheduler.step()
        self._optimizer.zero_grad(set_to_none=True)


@dataclass(frozen=True, kw_only=True)
class _Trained:
    losses: list[float]
    gradient_norms: list[float]
    band: Band


@dataclass(frozen=True, kw_only=True)
class _Compared:
    """Values of successive steps beside those of the reference, with the band and its key.

    Where one is `absent`, there is nothing to compare: a skipped step has no norm.
    """

    name: str
    measured: Sequence[float]
    reference: Sequence[float]
    absent: Sequence[bool]
    band: float
    key: str

    def errors(self) -> Iterator[float]:
        """That of each step, relative to the largest value of the reference up to it.

        Relative to the step's own value, a loss that training brings to zero would have an error
        without bounds.

        Raises:
            CorrectnessError: an error is beyond the band, or the reference is not finite.
        """
        largest = accumulate(map(abs, self.reference), max)
        values = zip(self.measured, self.reference, largest, self.absent, strict=True)
        for step, (own, plain, scale, absent) in enumerate(values, 1):
            if not isfinite(plain):
                raise CorrectnessError(f"step {step}: the {self.name} of plain fp32 is {plain}")
            difference = 0.0 if absent else abs(own - plain)
            error = difference / scale if scale else float(difference > 0)
            if not error <= self.band:
                raise CorrectnessError(
                    f"step {step}: the {self.name} is {own:.6g}, in plain fp32 {plain:.6g}: an "
                    f"error of {error:.2g} relative to {scale:.6g} is beyond the band of "
                    f"{self.band:g} ({self.key})"
                )
            yield error


def _largest_errors(losses: _Compared, norms: _Compared) -> tuple[float, float]:
    """Those of both, step by step, so that the first step that is wrong is the one named."""
    of_losses, of_norms = zip(*zip(losses.errors(), norms.errors(), strict=True), strict=True)
    return max(of_losses), max(of_norms)


def _average_gradients(module: nn.Module, ranks: int) -> None:
    """All parameters', in the same order on every rank; a missing gradient counts as zeros."""
    for parameter in module.parameters():
        if parameter.requires_grad:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad)
            parameter.grad /= ranks


def _in_fp32(batch: Batch) -> Batch:
    columns = (batch.inputs, batch.targets, *batch.context)
    inputs, targets, *context = (c.float() if c.is_floating_point() else c for c in columns)
    return batch._replace(inputs=inputs, targets=targets, context=tuple(context))
