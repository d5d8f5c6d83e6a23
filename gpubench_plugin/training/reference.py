"""fp32 reference: the first training steps repeated in plain fp32.

The reference has the same weights, batches, optimizer and random numbers as the measured training,
but no autocast, GradScaler, TF32, compiler or wrapper, and none of the trainer's code for
accumulation, clipping and updates. Ranks that train one model each compute the gradients of their
own batches and average them by all_reduce, which also holds where they share one batch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, chain, islice, zip_longest
from math import hypot, isfinite
from typing import TYPE_CHECKING, Any, Final, TypeVar

import torch
from torch import distributed as dist
from torch import nn
from torch._subclasses import FakeTensorMode

from gpubench_plugin.core import catalog
from gpubench_plugin.core.errors import CorrectnessError
from gpubench_plugin.core.quality_flags import UNCHECKED
from gpubench_plugin.core.records import Check
from gpubench_plugin.environment.device_errors import is_out_of_memory
from gpubench_plugin.measure.state import release_memory
from gpubench_plugin.precision._nested import cast_floating
from gpubench_plugin.training.bands import bands_of, has_batch_norm, well_conditioned_parameters
from gpubench_plugin.training.check import refuse_sum
from gpubench_plugin.training.compile import EAGER
from gpubench_plugin.training.model import build_model
from gpubench_plugin.training.seeding import RandomState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor
    from torch.optim import Optimizer

    from gpubench_plugin.config.sections import MeasureSection, TrainingSection
    from gpubench_plugin.ranks.process_group import RankAgreement
    from gpubench_plugin.training.bands import Bands
    from gpubench_plugin.training.check import RecordedStep
    from gpubench_plugin.training.optimization import OptimizerOf
    from gpubench_plugin.training.schedulers.base import LearningRateSchedule
    from gpubench_plugin.workloads.base import Batch, Workload

    StepInput = tuple[Sequence[Batch], bool]  # batches of a step, and whether it was skipped

_DROPOUT: Final = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)

_COMPILED_DRAWS: Final = "a compiled model draws different random numbers than this one in eager"
"""Of a model that draws some by a function, such as dropout without a module."""

_FP32_BYTES: Final = 4
_OPTIMIZER_STATES: Final = 2
"""Adam's states per weight, an upper bound for the other optimizers."""

_T = TypeVar("_T")


@dataclass(eq=False, repr=False, kw_only=True)
class Fp32Reference:
    """Trains `workload` again in plain fp32 and compares the first `steps`.

    `seed` draws the weights. `precision` is the measured one, `compute_dtypes` are the dtypes it
    computes in and reduces gradients in. With `averaging` the ranks train one model, with
    `shares_batch` each has a part of it and all have the same batch. `free_bytes` gives the free
    memory, None where unknown; without it the reference is tried unconditionally.
    """

    workload: Workload[Any]
    training: TrainingSection
    measure: MeasureSection
    precision: str
    compute_dtypes: Sequence[str]
    seed: int
    device: torch.device
    agreement: RankAgreement
    averaging: bool
    steps: int
    shares_batch: bool = False
    free_bytes: Callable[[], int | None] | None = None
    _precomputed: _ReferenceSteps | Check | None = field(default=None, init=False)

    def precompute_first_step(
        self, batches: Iterator[Batch], *, start: RandomState
    ) -> Iterator[Batch]:
        """Yield `batches` unchanged, after training the reference on those of the first step.

        Only where a single step is compared: before gradients and optimizer states exist, both
        models take less memory than the measured training does later. Every rank must call it.
        """
        if self.steps > 1:
            return batches
        first_batches = tuple(islice(batches, self.training.accumulation_steps))
        self._precomputed = self._run_isolated([(first_batches, False)], start)
        return chain(first_batches, batches)

    def compare(self, recorded_steps: Sequence[RecordedStep], *, start: RandomState) -> Check:
        """Errors of the `recorded_steps`, which started in random state `start`.

        Random generators and memory are left as they were. A step that a GradScaler skipped has no
        norm to compare, and the reference skips its update, too. Without a reference the record
        says why. Every rank must call it.

        Raises:
            CorrectnessError: an error is beyond the band, or the reference is not finite.
        """
        losses, norms, near_loss_norms, skipped = self._mean(
            [s.loss for s in recorded_steps],
            [s.gradient_norm for s in recorded_steps],
            [s.near_loss_norm for s in recorded_steps],
            [float(s.skipped) for s in recorded_steps],
        )
        reference = self._reference_of(recorded_steps, start)
        if isinstance(reference, Check):
            return reference
        is_absent = [share > 0 for share in skipped]
        first_update = next(
            (n for n, skips in enumerate(is_absent, 1) if not skips), len(is_absent)
        )
        bands = reference.bands
        if self.measure.check_loss_band is None:
            bands = bands.for_loss_in(recorded_steps[0].loss_dtype)
        first_bands, later_bands = bands
        norm_values = partial(StepValues, first=first_update, key="measure.check_gradient_band")
        return compare_steps(
            losses=StepValues(
                name="loss",
                measured=losses,
                reference=reference.losses,
                is_absent=[False] * len(losses),
                bands=(first_bands.loss, later_bands.loss),
                first=first_update,
                key="measure.check_loss_band",
            ),
            norms=norm_values(
                name="gradient norm",
                measured=norms,
                reference=reference.gradient_norms,
                is_absent=is_absent,
                bands=(
                    (later_bands if reference.has_batch_norm else first_bands).gradient_norm,
                    later_bands.gradient_norm,
                ),
            ),
            near_loss_norms=norm_values(
                name="gradient norm nearest the loss",
                measured=near_loss_norms[:first_update],
                reference=reference.near_loss_norms[:first_update],
                is_absent=is_absent[:first_update],
                bands=(first_bands.gradient_norm, first_bands.gradient_norm),
            ),
        )

    def fits(self, recorded_steps: Sequence[RecordedStep], *, start: RandomState) -> bool:
        """Whether it fits into memory beside the measured model; nothing is compared.

        The `recorded_steps` are trained as by :meth:`compare`.
        """
        reference = self._reference_of(recorded_steps, start)
        return not isinstance(reference, Check) or UNCHECKED not in reference.flags

    def _reference_of(
        self, recorded_steps: Sequence[RecordedStep], start: RandomState
    ) -> _ReferenceSteps | Check:
        """The steps computed before, else those of the `recorded_steps`."""
        if self._precomputed is not None:
            return self._precomputed
        steps = [(step.batches, step.skipped) for step in recorded_steps]
        return self._run_isolated(steps, start)

    def _run_isolated(
        self, steps: Sequence[StepInput], start: RandomState
    ) -> _ReferenceSteps | Check:
        """Run the reference from `start`, preserving generators and memory."""
        current_state = RandomState.capture(self.device)
        start.restore(self.device)
        try:
            with catalog.load("precision", "fp32")().switches():
                return self._run_if_it_fits(steps)
        finally:
            current_state.restore(self.device)
            release_memory(self.device)

    def _run_if_it_fits(self, steps: Sequence[StepInput]) -> _ReferenceSteps | Check:
        """Run the reference's steps, or record why it is unavailable."""
        needed_bytes = free_bytes = None
        if self.free_bytes is not None:
            needed_bytes, free_bytes = self._needed_bytes(), self.free_bytes()
        if not self._on_all_ranks(
            needed_bytes is None or free_bytes is None or needed_bytes <= free_bytes
        ):
            return _not_compared(needed_bytes, free_bytes)
        try:
            return self._run(steps)
        except _DoesNotFitError:
            pass  # releases the traceback's references before memory is released below
        release_memory(self.device)
        return _not_compared(
            self._needed_bytes() if needed_bytes is None else needed_bytes, free_bytes
        )

    def _run(self, steps: Sequence[StepInput]) -> _ReferenceSteps | Check:
        module = self._call_protected(self._build)
        if reason := self._incomparable_reason(module):
            return Check(correctness={"reference": {"not_compared": reason}})
        if self.averaging and self.agreement.world_size > 1:
            batch = cast_floating(steps[0][0][0], torch.float32)
            refuse_sum(self.workload.loss, module, batch, self.agreement)
        near_loss_parameters = well_conditioned_parameters(module)
        updates = _TorchUpdates(
            module, self.training, self.device, own_optimizer=self.workload.optimizer
        )
        losses, norms, near_loss_norms = [], [], []
        start = RandomState.capture(self.device)
        for number, (batches, skipped) in enumerate(steps, 1):
            losses.append(self._call_protected(partial(self._backward, module, batches)))
            if number == 1 and self._is_compiled:
                drawn = RandomState.capture(self.device) != start
                if not self._on_all_ranks(not drawn):
                    return Check(correctness={"reference": {"not_compared": _COMPILED_DRAWS}})
            if self.averaging and self.agreement.world_size > 1:
                _average_gradients(module, self.agreement.world_size)
            norms.append(updates.gradient_norm())
            near_loss_norms.append(_norm(near_loss_parameters))
            if number < len(steps):
                self._call_protected(partial(updates.update, skipped=skipped))
        losses, norms, near_loss_norms = self._mean(losses, norms, near_loss_norms)
        return _ReferenceSteps(
            losses=losses,
            gradient_norms=norms,
            near_loss_norms=near_loss_norms,
            bands=bands_of(
                module,
                precision=self.precision,
                compute_dtypes=self.compute_dtypes,
                measure=self.measure,
            ),
            has_batch_norm=has_batch_norm(module),
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
        return self.agreement.mean([float(condition)]) == [1.0]

    def _needed_bytes(self) -> int | None:
        """Memory it takes; None if the model cannot run without data."""
        samples = self.training.samples
        try:
            return fp32_step_bytes(self.workload, samples=samples, updates=self.steps > 1)
        except Exception:  # whatever a model of the user's raises where it needs values
            return None

    def _build(self) -> nn.Module:
        return build_model(
            self.workload,
            section=self.workload.section.model_copy(update=EAGER),
            seed=self.seed,
            device=self.device,
            precision=catalog.load("precision", "fp32")(),
        ).train()

    def _incomparable_reason(self, module: nn.Module) -> str | None:
        """Reason the measured model differs from the reference by design, or None."""
        has_dropout = any(isinstance(m, _DROPOUT) and m.p > 0 for m in module.modules())
        if has_dropout and self._is_compiled:
            return "compiled dropout draws different random numbers; set its rate to 0 to compare"
        if has_dropout and self.shares_batch:
            return "ranks that share a model draw dropout separately; set its rate to 0 to compare"
        if self.shares_batch and has_batch_norm(module):
            return "ranks that share a model may normalize partial batches"
        return None

    @property
    def _is_compiled(self) -> bool:
        return bool(self.workload.section.compile != "none")

    def _backward(self, module: nn.Module, batches: Sequence[Batch]) -> float:
        """Accumulate gradients of the mean loss of `batches`, and return the loss."""
        losses = []
        for batch in batches:
            loss = self.workload.loss(module, cast_floating(batch, torch.float32)) / len(batches)
            loss.backward()
            losses.append(float(loss.detach()))
        return sum(losses)

    def _mean(self, *columns: Sequence[float]) -> list[list[float]]:
        """Mean over ranks of each value of equally long columns, so that all ranks agree."""
        means = self.agreement.mean([value for column in columns for value in column])
        length = len(columns[0])
        return [means[start : start + length] for start in range(0, len(means), length)]


class _TorchUpdates:
    """Clipping, optimizer and schedule directly from torch, independent of the code under test."""

    def __init__(
        self,
        module: nn.Module,
        training: TrainingSection,
        device: torch.device,
        *,
        own_optimizer: OptimizerOf,
    ):
        self._parameters = [p for p in module.parameters() if p.requires_grad]
        # A fused optimizer is called for skipped steps, too, and the schedule moves with its calls.
        self._moves_when_skipped: bool
        self._optimizer: Optimizer
        own = own_optimizer(self._parameters)
        if own is not None:
            self._optimizer, self._moves_when_skipped = own, bool(own.defaults.get("fused"))
        else:
            builder = catalog.load("optimizers", training.optimizer)
            self._moves_when_skipped = builder(training, device).fused
            unfused = training.model_copy(update={"fused": False})
            self._optimizer = builder(unfused, device).build(self._parameters)
        schedule: LearningRateSchedule = catalog.load("schedulers", training.scheduler)
        self._scheduler = schedule.build(self._optimizer, training.schedule_length)
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
    near_loss_norms: list[float]
    bands: Bands
    has_batch_norm: bool


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


def fp32_step_bytes(workload: Workload[Any], *, samples: int, updates: bool) -> int:
    """Bytes of weights, gradients, and activations saved by one forward pass of `samples`.

    Twice the largest saved tensor is added for the gradients of the backward pass, and with
    `updates` the optimizer's states. Kernel workspaces are not counted. The forward pass runs on
    fake tensors.
    """
    fake_workload = workload.for_fake_tensors()
    recomputes = workload.section.activation_checkpointing  # for_fake_tensors() turns it off
    fake_workload.section = fake_workload.section.model_copy(
        update={"activation_checkpointing": recomputes}
    )
    with FakeTensorMode():
        module = fake_workload.build().train()
        batch = fake_workload.synthetic_batch(samples, device=torch.device("cpu"))
        model_storages = {_storage(t) for t in (*module.parameters(), *module.buffers())}
        saved_tensors: dict[int, Tensor] = {}

        def save_hook(tensor: Tensor) -> Tensor:
            saved_tensors[_storage(tensor)] = tensor
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(save_hook, lambda tensor: tensor):
            _loss = fake_workload.loss(module, batch)
        sizes = [
            tensor.untyped_storage().nbytes()
            for storage, tensor in saved_tensors.items()
            if storage not in model_storages
        ]
        trainable = sum(p.numel() for p in module.parameters() if p.requires_grad)
        weights = sum(p.numel() for p in module.parameters())
    copies = weights + trainable * (1 + (_OPTIMIZER_STATES if updates else 0))
    return _FP32_BYTES * copies + sum(sizes) + 2 * max(sizes, default=0)


def _storage(tensor: Tensor) -> int:
    address: int = tensor.untyped_storage()._cdata
    return address


@dataclass(frozen=True, kw_only=True)
class StepValues:
    """Values of successive steps and of the reference, with bands and config key.

    `bands` are the bands of the `first` steps, up to and including the first update, and of later
    ones. An `is_absent` value, the norm of a skipped step, is not compared.
    """

    name: str
    measured: Sequence[float]
    reference: Sequence[float]
    is_absent: Sequence[bool]
    bands: tuple[float, float]
    first: int
    key: str

    def errors(self) -> Iterator[float | None]:
        """Error of each step, relative to the largest reference value so far; None if absent.

        Relative to its own step, the error of a loss that falls to zero would be unbounded.

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


def compare_steps(losses: StepValues, norms: StepValues, near_loss_norms: StepValues) -> Check:
    """Record all errors, with the largest ones as facts.

    Only the first steps have `near_loss_norms`. Where a GradScaler skipped every step, gradients
    are ``unchecked``.

    Raises:
        CorrectnessError: about the first step that is wrong in any of the three.
    """
    values = (losses, norms, near_loss_norms)
    rows = zip_longest(*(series.errors() for series in values))  # step by step
    loss_errors, norm_errors, near_loss_errors = zip(*rows, strict=True)
    loss_error, norm_error = _largest(loss_errors), _largest(norm_errors)
    record = {
        "steps": len(loss_errors),
        "loss_error": loss_error,
        "loss_bands": losses.bands,
        "gradient_norm_error": norm_error,
        "gradient_bands": norms.bands,
        "nearest_error": _largest(near_loss_errors),
        "nearest_band": near_loss_norms.bands[0],
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
