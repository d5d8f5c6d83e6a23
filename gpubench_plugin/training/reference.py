"""fp32 reference: the first training steps repeated in plain fp32.

The reference has the same weights, batches, optimizer and random numbers, and nothing else of what
is measured: no autocast, no GradScaler, no TF32, no compiler, no wrapper, and not the trainer's
code that accumulates, clips and updates. Where several ranks train
one model, each computes the gradients of its own batches, and they are averaged by all_reduce,
which is right as well where the ranks share one batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import accumulate, chain, islice
from math import hypot, isfinite
from typing import TYPE_CHECKING, Any, Final, TypeVar

import torch
from torch import distributed as dist
from torch import nn
from torch._subclasses import FakeTensorMode

from gpubench_plugin import catalog
from gpubench_plugin.errors import CorrectnessError
from gpubench_plugin.flags import UNCHECKED
from gpubench_plugin.measure import release_memory
from gpubench_plugin.records import Check
from gpubench_plugin.results import is_out_of_memory
from gpubench_plugin.training.bands import bands_of, nearest_the_loss, normalises_batches
from gpubench_plugin.training.compile import EAGER
from gpubench_plugin.training.model import build_model
from gpubench_plugin.training.seeding import RandomState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor
    from torch.optim import Optimizer

    from gpubench_plugin.config import MeasureSection, TrainingSection
    from gpubench_plugin.distributed import RankAgreement
    from gpubench_plugin.training.bands import Bands
    from gpubench_plugin.training.check import RecordedStep
    from gpubench_plugin.training.schedulers.base import LearningRateSchedule
    from gpubench_plugin.workloads import Batch, Workload

    Given = tuple[Sequence[Batch], bool]  # of a step: its batches, and whether it has no update

_DROPOUT: Final = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)

_BYTES: Final = 4
"""Of a number in fp32."""

_MOMENTS: Final = 2
"""What Adam keeps of each weight; an optimizer that keeps less takes less."""

_T = TypeVar("_T")


class Fp32Reference:
    """Trains `workload` again in plain fp32 and compares the first `steps`.

    `section` builds the model, `seed` draws its weights. `precision` names what is measured, and
    `compute_dtypes` what it computes in and reduces gradients in. `averaging` says that the ranks
    train one model together, `shares_batch` that they divide it, all on the same batch.

    `free_bytes` tells the memory that is left, None where the system does not say; without the
    function nobody asks whether the reference fits before it is tried.
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
        agreement: RankAgreement,
        averaging: bool,
        steps: int,
        shares_batch: bool = False,
        free_bytes: Callable[[], int | None] | None = None,
    ):
        self.steps = steps
        self._workload = workload
        self._training = training
        self._bands: Callable[[nn.Module], Bands] = partial(
            bands_of, precision=precision, compute_dtypes=compute_dtypes, measure=measure
        )
        self._seed = seed
        self._device = device
        self._agreement = agreement
        self._averaging = averaging and agreement.world_size > 1
        self._shares_batch = shares_batch
        self._free_bytes = free_bytes
        self._precomputed: _ReferenceSteps | Check | None = None

    def precompute_first_step(
        self, batches: Iterator[Batch], *, start: RandomState
    ) -> Iterator[Batch]:
        """Yield `batches` unchanged, after training the reference on those of the first step.

        It does so where no other step is compared: before the measured training has gradients and
        an optimizer's states, both models together take less than that training does later. Every
        rank must call it.
        """
        if self.steps > 1:
            return batches
        first_batches = tuple(islice(batches, self._training.accumulation_steps))
        self._precomputed = self._run_isolated([(first_batches, False)], start)
        return chain(first_batches, batches)

    def compare(self, recorded_steps: Sequence[RecordedStep], *, start: RandomState) -> Check:
        """Errors of the `recorded_steps` steps, which started in state `start`.

        The random generators are left as they were, and nothing the reference took stays in
        memory. A step that a GradScaler skipped has no norm to compare, and the reference skips
        its update, too. Where there is nothing to compare with, the record says why. Every rank
        must call it.

        Raises:
            CorrectnessError: an error is beyond the band, or the reference is not finite.
        """
        losses, norms, near_loss_norms, skipped = self._mean(
            [s.loss for s in recorded_steps],
            [s.gradient_norm for s in recorded_steps],
            [s.nearest_norm for s in recorded_steps],
            [float(s.skipped) for s in recorded_steps],
        )
        trained = self._precomputed
        if trained is None:
            steps = [(step.batches, step.skipped) for step in recorded_steps]
            trained = self._run_isolated(steps, start)
        if isinstance(trained, Check):
            return trained
        is_absent = [share > 0 for share in skipped]
        first_update = next(
            (n for n, skips in enumerate(is_absent, 1) if not skips), len(is_absent)
        )
        first_bands, later_bands = trained.bands.first, trained.bands.later
        norm_values = partial(Values, first=first_update, key="measure.check_gradient_band")
        return compared(
            losses=Values(
                name="loss",
                measured=losses,
                reference=trained.losses,
                is_absent=[False] * len(losses),
                bands=(first_bands.loss, later_bands.loss),
                first=first_update,
                key="measure.check_loss_band",
            ),
            norms=norm_values(
                name="gradient norm",
                measured=norms,
                reference=trained.gradient_norms,
                is_absent=is_absent,
                bands=(
                    later_bands.gradient_norm if trained.normalised else first_bands.gradient_norm,
                    later_bands.gradient_norm,
                ),
            ),
            nearest=norm_values(
                name="gradient norm nearest the loss",
                measured=near_loss_norms[:first_update],
                reference=trained.nearest_norms[:first_update],
                is_absent=is_absent[:first_update],
                bands=(first_bands.gradient_norm, first_bands.gradient_norm),
            ),
        )

    def _run_isolated(self, steps: Sequence[Given], start: RandomState) -> _ReferenceSteps | Check:
        """Run the reference from `start`, preserving generators and memory."""
        current_state = RandomState.capture(self._device)
        start.restore(self._device)
        try:
            with catalog.load("precision", "fp32")().switches():
                return self._train(steps)
        finally:
            current_state.restore(self._device)
            release_memory(self._device)

    def _train(self, steps: Sequence[Given]) -> _ReferenceSteps | Check:
        """Run the reference's steps, or record why it is unavailable."""
        needed_bytes = free_bytes = None
        if self._free_bytes is not None:
            needed_bytes, free_bytes = self._needed_bytes(), self._free_bytes()
        if not self._on_all_ranks(
            needed_bytes is None or free_bytes is None or needed_bytes <= free_bytes
        ):
            return _not_compared(needed_bytes, free_bytes)
        try:
            return self._trained(steps)
        except _DoesNotFitError:
            pass  # beyond this block nothing of it is left
        release_memory(self._device)
        return _not_compared(
            self._needed_bytes() if needed_bytes is None else needed_bytes, free_bytes
        )

    def _trained(self, steps: Sequence[Given]) -> _ReferenceSteps | Check:
        module = self._call_protected(self._build)
        if reason := self._incomparable_reason(module):
            return Check(correctness={"reference": {"not_compared": reason}})
        near_loss_parameters = nearest_the_loss(module)
        updates = _TorchUpdates(module, self._training, self._device)
        own_losses, own_norms, own_nearest = [], [], []
        for number, (batches, skipped) in enumerate(steps, 1):
            own_losses.append(self._call_protected(partial(self._backward, module, batches)))
            if self._averaging:
                _average_gradients(module, self._agreement.world_size)
            own_norms.append(updates.gradient_norm())
            own_nearest.append(_norm(near_loss_parameters))
            if number < len(steps):
                self._call_protected(partial(updates.update, skipped=skipped))
        losses, norms, of_nearest = self._mean(own_losses, own_norms, own_nearest)
        return _ReferenceSteps(
            losses=losses,
            gradient_norms=norms,
            nearest_norms=of_nearest,
            bands=self._bands(module),
            normalised=normalises_batches(module),
        )

    def _call_protected(self, work: Callable[[], _T]) -> _T:
        """Run `work`, returning its result.

        Raises:
            _DoesNotFitError: a rank, perhaps another one, ran out of memory.
        """
        results: list[_T] = []
        try:
            results.append(work())
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
        if not self._on_all_ranks(bool(results)):
            raise _DoesNotFitError
        return results[0]

    def _on_all_ranks(self, condition: bool) -> bool:
        """Whether the condition holds on all ranks."""
        return self._agreement.mean([float(condition)]) == [1.0]

    def _needed_bytes(self) -> int:
        samples, steps = self._training.batch_size, self.steps
        return _plain_step_bytes(self._workload, samples=samples, updates=steps > 1)

    def _build(self) -> nn.Module:
        return build_model(
            self._workload,
            section=self._workload.section.model_copy(update=EAGER),
            seed=self._seed,
            device=self._device,
            precision=catalog.load("precision", "fp32")(),
        ).train()

    def _incomparable_reason(self, module: nn.Module) -> str | None:
        """Why the measured model differs from the reference by design, or None."""
        has_dropout = any(isinstance(m, _DROPOUT) and m.p > 0 for m in module.modules())
        if has_dropout and self._workload.section.compile != "none":
            return "compiled dropout draws different random numbers; set its rate to 0 to compare"
        if has_dropout and self._shares_batch:
            return "ranks that share a model draw dropout separately; set its rate to 0 to compare"
        if self._shares_batch and normalises_batches(module):
            return "ranks that share a model may normalize partial batches"
        return None

    def _backward(self, module: nn.Module, batches: Sequence[Batch]) -> float:
        """Accumulate gradients of the mean loss of `batches`, and return the loss."""
        losses = []
        for batch in batches:
            loss = self._workload.loss(module, _in_fp32(batch)) / len(batches)
            loss.backward()
            losses.append(float(loss.detach()))
        return sum(losses)

    def _mean(self, *columns: Sequence[float]) -> list[list[float]]:
        """Mean over ranks of each value of equally long columns, so that all ranks agree."""
        rank_means = self._agreement.mean([value for column in columns for value in column])
        length = len(columns[0])
        return [rank_means[at : at + length] for at in range(0, len(rank_means), length)]


class _TorchUpdates:
    """Clipping, optimizer and schedule directly from torch, independent of the code under test."""

    def __init__(self, module: nn.Module, training: TrainingSection, device: torch.device):
        self._parameters = [p for p in module.parameters() if p.requires_grad]
        builder = catalog.load("optimizers", training.optimizer)
        # A fused optimizer is called for skipped steps, too, and the schedule moves with its calls.
        self._moves_when_skipped: bool = builder(training, device).fused
        unfused = training.model_copy(update={"fused": False})
        self._optimizer: Optimizer = builder(unfused, device).build(self._parameters)
        schedule: LearningRateSchedule = catalog.load("schedulers", training.scheduler)
        self._scheduler = schedule.build(self._optimizer, training.schedule_steps)
        self._clipping = training.gradient_clipping

    def gradient_norm(self) -> float:
        return _norm(self._parameters)

    def update(self, *, skipped: bool) -> None:
        """Apply the gradients, or discard them if `skipped`."""
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
class _ReferenceSteps:
    """Per step: loss, global norm, and norm of the gradients nearest the loss."""

    losses: list[float]
    gradient_norms: list[float]
    nearest_norms: list[float]
    bands: Bands
    normalised: bool


class _DoesNotFitError(Exception):
    """Not enough memory for the reference."""


def _not_compared(needed_bytes: int | None, free_bytes: int | None) -> Check:
    """Record that nothing was compared for lack of memory, with needed and free bytes."""
    reason = "the fp32 reference does not fit into memory"
    record = {"unchecked": reason, "needed_bytes": needed_bytes, "free_bytes": free_bytes}
    return Check(correctness={"reference": record}, flags=(UNCHECKED,))


def _norm(parameters: Sequence[nn.Parameter]) -> float:
    gradients = [p.grad for p in parameters if p.grad is not None]
    return hypot(*(float(torch.linalg.vector_norm(g)) for g in gradients))


def _average_gradients(module: nn.Module, ranks: int) -> None:
    """Average gradients in the same order on every rank; missing ones count as zero."""
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


def _plain_step_bytes(workload: Workload[Any], *, samples: int, updates: bool) -> int:
    """Bytes of weights, gradients, and activations saved by one forward pass of `samples`.

    Twice the largest saved tensor is added, for the gradients that pass through it, and with
    `updates` the state of an optimizer. The workspace of single kernels is not counted. It runs
    forward on fake tensors, which know their shape only.
    """
    counted = workload.for_fake_tensors()
    again = workload.section.activation_checkpointing  # here that is the point
    counted.section = counted.section.model_copy(update={"activation_checkpointing": again})
    with FakeTensorMode():
        module = counted.build().train()
        batch = counted.synthetic_batch(samples, device=torch.device("cpu"))
        own = {_storage(t) for t in (*module.parameters(), *module.buffers())}
        saved: dict[int, Tensor] = {}

        def keep(tensor: Tensor) -> Tensor:
            saved[_storage(tensor)] = tensor
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            _loss = counted.loss(module, batch)
        sizes = [t.untyped_storage().nbytes() for key, t in saved.items() if key not in own]
        trained = sum(p.numel() for p in module.parameters() if p.requires_grad)
        weights = sum(p.numel() for p in module.parameters())
    copies = weights + trained * (1 + (_MOMENTS if updates else 0))
    return _BYTES * copies + sum(sizes) + 2 * max(sizes, default=0)


def _storage(tensor: Tensor) -> int:
    address: int = tensor.untyped_storage()._cdata
    return address


@dataclass(frozen=True, kw_only=True)
class Values:
    """Values of successive steps and of the reference, with bands and config key.

    `bands` are that of the first steps and that of the later ones; `first` says how many are first:
    until there was an update, all of them have the weights of the start. Where a value is
    `is_absent`, there is nothing to compare: a skipped step has no norm.
    """

    name: str
    measured: Sequence[float]
    reference: Sequence[float]
    is_absent: Sequence[bool]
    bands: tuple[float, float]
    first: int
    key: str

    def errors(self) -> Iterator[float | None]:
        """Error of each step, relative to the largest reference value so far.

        None of a step without a value.

        Relative to the step's own value, a loss that training brings to zero would have an error
        without bounds.

        Raises:
            CorrectnessError: an error is beyond its band, or the reference is not finite.
        """
        scales = accumulate(map(abs, self.reference), max)
        values = zip(self.measured, self.reference, scales, self.is_absent, strict=True)
        for step, (value, expected, scale, is_absent) in enumerate(values, 1):
            if not isfinite(expected):
                raise CorrectnessError(f"step {step}: the {self.name} of plain fp32 is {expected}")
            if is_absent:
                yield None
                continue
            difference = abs(value - expected)
            error = difference / scale if scale else float(difference > 0)
            band = self.bands[step > self.first]
            if not error <= band:
                raise CorrectnessError(
                    f"step {step}: the {self.name} is {value:.6g}, but {expected:.6g} in "
                    f"plain fp32: the error of {error:.2g} relative to {scale:.6g} exceeds "
                    f"{band:g} ({self.key})"
                )
            yield error


def compared(losses: Values, norms: Values, nearest: Values) -> Check:
    """Record all errors, with the largest ones as facts.

    `norms` are the global gradient norms, `nearest` those of the gradients nearest the loss, of
    which only the first steps' are there. Where a GradScaler skipped every compared step no
    gradient was: that is ``unchecked``.

    Raises:
        CorrectnessError: the first step that is wrong, whatever of it is.
    """
    loss_errors: list[float | None] = []
    norm_errors: list[float | None] = []
    nearest_errors: list[float | None] = []
    errors_nearest = nearest.errors()
    for loss, norm in zip(losses.errors(), norms.errors(), strict=True):
        loss_errors.append(loss)
        norm_errors.append(norm)
        nearest_errors.extend(islice(errors_nearest, 1))
    loss_error, norm_error = _largest(loss_errors), _largest(norm_errors)
    record = {
        "steps": len(loss_errors),
        "loss_error": loss_error,
        "loss_bands": losses.bands,
        "gradient_norm_error": norm_error,
        "gradient_bands": norms.bands,
        "nearest_error": _largest(nearest_errors),
        "nearest_band": nearest.bands[0],
        "losses": losses.reference,
        "gradient_norms": norms.reference,
        "loss_errors": loss_errors,
        "gradient_norm_errors": norm_errors,
    }
    errors = {"loss_error": loss_error, "gradient_norm_error": norm_error}
    facts = {name: error for name, error in errors.items() if error is not None}
    flags = (UNCHECKED,) if norm_error is None else ()
    return Check(correctness={"reference": record}, facts=facts, flags=flags)


def _largest(errors: Sequence[float | None]) -> float | None:
    """Largest error; None if every step was skipped."""
    return max((error for error in errors if error is not None), default=None)
