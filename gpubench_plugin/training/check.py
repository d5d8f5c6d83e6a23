"""Checks of a training step before timing, and a recorder of its first steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import isfinite
from statistics import fmean
from typing import Final

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from gpubench_plugin.config.sections import TrainingSection
from gpubench_plugin.core.errors import CorrectnessError, Misuse, UsageProblem
from gpubench_plugin.core.records import Check
from gpubench_plugin.measure.protocols import UntimedCheck
from gpubench_plugin.precision._nested import map_tensors, tensors_in, values_of
from gpubench_plugin.ranks.agreement import RankAgreement
from gpubench_plugin.training.data.base import NO_EPOCHS, DataSource
from gpubench_plugin.training.optimization import Optimization
from gpubench_plugin.training.seeding import RandomState
from gpubench_plugin.workloads.base import Batch

LossFunction = Callable[["nn.Module", "Batch"], Tensor]

DEFAULT_STEPS: Final = 20
"""Steps of the untimed check where ``training.steps`` is null: enough for the loss on one batch to
fall, few enough to go untimed."""


def refuse_autocast(device: torch.device) -> None:
    """Refuse an autocast around a benchmark, whose precision would not be the one on record.

    Raises:
        Misuse: it is on for that type of device.
    """
    if torch.is_autocast_enabled(device.type):
        raise Misuse(
            f"torch.autocast({device.type!r}) is on around the benchmark; leave it out: the "
            "precision decides what is computed in 16 bits (--precision=bf16, amp)"
        )


def recording(**facts: object) -> UntimedCheck:
    """Record `facts` under ``correctness``; nothing is checked."""
    return lambda _: Check(correctness=facts)


def require_scalar_loss(
    loss_of: LossFunction, losses: list[Tensor], *, has_graph: bool = True
) -> LossFunction:
    """Wrap `loss_of` to require a scalar loss, and append it to `losses`.

    With `has_graph` it must depend on trainable parameters.
    """

    def scalar_loss(module: nn.Module, batch: Batch) -> Tensor:
        loss: object = loss_of(module, batch)
        if not isinstance(loss, Tensor) or loss.ndim != 0:
            shape = tuple(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
            raise CorrectnessError(f"the loss must be a scalar tensor, not {shape}")
        if has_graph and not loss.requires_grad:
            raise CorrectnessError(
                "the loss depends on no trainable parameter: it is detached, all are frozen, or "
                "torch.no_grad is on"
            )
        losses.append(loss.detach())
        return loss

    return scalar_loss


def require_finite(loss: float, *, step: int | None = None) -> None:
    """Refuse a NaN or infinite loss.

    Raises:
        CorrectnessError: naming the step, None for the last timed one.
    """
    if not isfinite(loss):
        step_text = "in the last timed step" if step is None else f"at step {step}"
        advice = ": lower training.learning_rate, or set training.gradient_clipping"
        raise CorrectnessError(f"the loss {step_text} is {loss}{'' if step == 1 else advice}")


def require_gradients(
    module: nn.Module,
    *,
    require_finite_gradients: bool,
    agreement: RankAgreement,
    names: Sequence[str] | None = None,
) -> None:
    """Refuse trainable parameters without gradients, or with non-finite ones where required.

    Each rank checks its shard of a sharded gradient; if one refuses, all do. Where ranks hold
    different parameters, `names` lists those of all ranks.

    Raises:
        CorrectnessError: naming the parameter.
    """
    if isinstance(module, DistributedDataParallel):
        module = module.module  # whose parameters have the names that the user knows
    gradients = {name: p.grad for name, p in module.named_parameters() if p.requires_grad}
    names = tuple(gradients) if names is None else names
    missing_share = agreement.mean(
        [float(name in gradients and gradients[name] is None) for name in names]
    )
    not_finite = agreement.mean(
        [float(require_finite_gradients and not is_finite(gradients.get(name))) for name in names]
    )
    for name, is_missing, is_not_finite in zip(names, missing_share, not_finite, strict=True):
        if is_missing:
            raise CorrectnessError(
                f"parameter {name} received no gradient: it does not affect the loss of this batch"
            )
        if is_not_finite:
            raise CorrectnessError(f"the gradient of parameter {name} is not finite")


def refuse_sparse_gradients(module: nn.Module) -> None:
    """Refuse sparse gradients, with which an update has failed.

    Raises:
        Misuse: a parameter has one.
    """
    for name, parameter in module.named_parameters():
        if parameter.grad is not None and parameter.grad.layout != torch.strided:
            raise Misuse(
                f"the gradient of parameter {name} is sparse, which the optimizer, its "
                "weight_decay, fused=true or training.gradient_clipping does not allow; "
                "allowed: sgd, torch.optim.SparseAdam, or the layer with sparse=False"
            )


def is_finite(tensor: Tensor | None) -> bool:
    """Whether all numbers of this rank's part are, if there are any."""
    if tensor is None:
        return True
    values = values_of(tensor.to_local() if isinstance(tensor, DTensor) else tensor)
    if not values.is_floating_point() or not values.numel():
        return True
    # aminmax needs no temporary tensors, unlike isfinite: outputs may be gigabytes.
    return bool(torch.stack(values.aminmax()).isfinite().all())


def require_updates(steps: int, skipped: int) -> None:
    """Refuse training in which every step was skipped.

    Raises:
        CorrectnessError: scaled gradients overflow in every step, or are NaN at any scale.
    """
    if skipped and skipped == steps:
        raise CorrectnessError(
            f"all {steps} optimizer steps were skipped because of non-finite gradients: lower "
            "precision.init_scale, or look for NaN"
        )


def check_loss_drop(losses: Sequence[float], *, limit: float | None, advice: str = "") -> float:
    """Ratio of the mean of the last three losses to that of the first three.

    With fewer than six losses it compares the halves. The message gives `advice`.

    Raises:
        CorrectnessError: it is not below the `limit` (``training.loss_drop``).
    """
    count = max(1, min(3, len(losses) // 2))
    first_mean, last_mean = fmean(losses[:count]), fmean(losses[-count:])
    if limit is not None and not last_mean < limit * first_mean:
        raise CorrectnessError(
            f"training.loss_drop={limit}: in {len(losses)} steps the mean of {count} losses went "
            f"from {first_mean:.4g} to {last_mean:.4g}, not below {limit:g} of the first; "
            f"{advice and f'{advice}; '}if the step is correct, disable the check with "
            "--training.loss_drop=null"
        )
    return last_mean / first_mean if first_mean else 1.0


def steps_of_check(training: TrainingSection, data: DataSource) -> int:
    """Optimizer steps of the untimed check.

    Raises:
        UsageProblem: ``training.epochs`` of data without an end.
    """
    if training.epochs is None:
        return training.steps or DEFAULT_STEPS
    if data.steps_per_epoch is None:
        raise UsageProblem(f"training.epochs={training.epochs}: {NO_EPOCHS}")
    return -(-training.epochs * data.steps_per_epoch // training.accumulation_steps)


@dataclass(frozen=True, kw_only=True)
class RecordedStep:
    """One optimizer step on this rank.

    `loss` is the mean over the accumulated `batches`, computed in `loss_dtype`, `gradient_norm` the
    global norm before clipping without the loss scale, and `near_loss_norm` that of the gradients
    nearest the loss.
    The norms of a step `skipped` by the GradScaler are not finite.
    """

    batches: tuple[Batch, ...]
    loss: float
    loss_dtype: torch.dtype
    gradient_norm: float
    near_loss_norm: float
    skipped: bool


@dataclass(eq=False, repr=False)
class StepRecorder:
    """Records the first `count` steps of `optimization`; reading losses and norms synchronizes."""

    count: int
    optimization: Optimization
    near_loss_parameters: Sequence[nn.Parameter]
    steps: list[RecordedStep] = field(default_factory=list, init=False)
    _batches: list[Batch] = field(default_factory=list, init=False)
    _losses: list[Tensor] = field(default_factory=list, init=False)
    _norms: tuple[float, float] = field(default=(0.0, 0.0), init=False)
    _skipped: int = field(default=0, init=False)

    def recorded(self, loss_of: LossFunction) -> LossFunction:
        """Wrap `loss_of` to record batches and losses while active."""

        def recorded_loss(module: nn.Module, batch: Batch) -> Tensor:
            loss = loss_of(module, batch)
            if self._is_active:
                self._batches.append(batch)
                self._losses.append(loss.detach())
            return loss

        return recorded_loss

    def before_update(self) -> None:
        """Hook with complete, unclipped gradients."""
        if self._is_active:
            norm = self.optimization.gradient_norm
            self._norms = norm(), norm(self.near_loss_parameters)

    def after_update(self) -> None:
        """Hook after the step."""
        if not self._is_active:
            return
        skipped = self.optimization.skipped_steps()
        gradient_norm, near_loss_norm = self._norms
        step = RecordedStep(
            batches=tuple(self._batches),
            loss=sum(map(float, self._losses)) / len(self._losses),
            loss_dtype=self._losses[0].dtype,
            gradient_norm=gradient_norm,
            near_loss_norm=near_loss_norm,
            skipped=skipped > self._skipped,
        )
        self.steps.append(step)
        self._batches.clear()
        self._losses.clear()
        self._skipped = skipped

    @property
    def _is_active(self) -> bool:
        return len(self.steps) < self.count


_ROUNDING: Final = 1e-3
"""Largest relative error of a sum over parts in fp32; the mean of these parts differs by 44%."""


def refuse_sum(
    loss_of: LossFunction, module: nn.Module, batch: Batch, agreement: RankAgreement
) -> None:
    """Refuse a loss that adds up samples on ranks whose average makes its gradients too small.

    Every rank must call it.

    Raises:
        CorrectnessError: on all ranks.
    """
    if not agreement.everywhere(not adds_up_samples(loss_of, module, batch)):
        raise CorrectnessError(
            "the loss of a batch is the sum of those of its samples, but "
            f"{agreement.world_size} ranks average their gradients; let it be a mean over the "
            "samples (reduction='mean')"
        )


def adds_up_samples(loss_of: LossFunction, module: nn.Module, batch: Batch) -> bool:
    """Whether the loss of `batch` is the sum of those of a third and the rest, and not their mean.

    In eval mode and without gradients; random numbers are left as they were. False where the batch
    cannot be split along its first dimension, or its parts have no loss.
    """
    samples = next((tensor.shape[0] for tensor in tensors_in(batch) if tensor.ndim), 0)
    third = samples // 3
    if not third:
        return False

    def loss(start: int, stop: int) -> float:
        def part(tensor: Tensor) -> Tensor:
            return tensor[start:stop] if tensor.ndim and len(tensor) == samples else tensor

        return float(loss_of(module, map_tensors(part, batch)))

    device = next(tensor.device for tensor in tensors_in(batch))
    was_training, random_state = module.training, RandomState.capture(device)
    module.eval()
    try:
        with torch.no_grad():
            whole, first, rest = loss(0, samples), loss(0, third), loss(third, samples)
    except Exception:  # whatever a model of the user's raises on a part of a batch
        return False
    finally:
        module.train(was_training)
        random_state.restore(device)
    mean = (third * first + (samples - third) * rest) / samples
    allowed = _ROUNDING * abs(whole)
    return abs(first + rest - whole) <= allowed < abs(mean - whole)
