"""fp32 reference: the first training steps repeated in plain fp32.

The reference has the same weights, batches, optimizer and random numbers as the measured training,
but no autocast, GradScaler, TF32, compiler or wrapper, and none of the trainer's code for
accumulation, clipping and updates. Ranks that train one model each compute the gradients of their
own batches and average them by all_reduce, which also holds where they share one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice, zip_longest
from math import hypot, isfinite
from typing import Any, Final

import torch
from torch import distributed as dist
from torch import nn

from gpubench_plugin.config.sections import MeasureSection, TrainingSection
from gpubench_plugin.core import catalog
from gpubench_plugin.core.errors import CorrectnessError, error_text
from gpubench_plugin.core.quality_flags import UNCHECKED
from gpubench_plugin.core.records import Check
from gpubench_plugin.environment.device_errors import is_out_of_memory
from gpubench_plugin.measure.process_state import host_memory_limited, release_memory
from gpubench_plugin.precision._nested import cast_floating, values_of
from gpubench_plugin.ranks.agreement import RankAgreement
from gpubench_plugin.training.bands import (
    Bands,
    bands_of,
    has_batch_norm,
    well_conditioned_parameters,
)
from gpubench_plugin.training.check import RecordedStep, refuse_sum
from gpubench_plugin.training.model import build_model
from gpubench_plugin.training.seeding import RandomState
from gpubench_plugin.workloads.base import Batch, Workload

StepInput = tuple[Sequence[Batch], bool]  # batches of a step, and whether it was skipped

_DROPOUT: Final = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)


@dataclass(eq=False, repr=False, kw_only=True)
class Fp32Reference:
    """Trains `workload` again in plain fp32 and compares the first `steps`.

    `seed` draws the weights. `precision` is the measured one, `compute_dtypes` are the dtypes it
    computes in and reduces gradients in. With `averaging` the ranks train one model, with
    `shares_batch` each has a part of it and all have the same batch. It is tried, and left out if
    an allocation fails: of the host beyond what `host_bytes` tells to be free, unless it is None.
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
    host_bytes: Callable[[], int] | None = None
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
        rows = [
            (s.loss, s.gradient_norm, s.near_loss_norm, float(s.skipped)) for s in recorded_steps
        ]
        losses, norms, near_loss_norms, skipped = self._mean(*zip(*rows, strict=True))
        reference = self._reference_of(recorded_steps, start)
        if isinstance(reference, Check):
            return reference
        is_absent = [share > 0 for share in skipped]
        first_update = next((n for n, skips in enumerate(is_absent, 1) if not skips), len(rows))
        bands = reference.bands
        if self.measure.check_loss_band is None:
            bands = bands.for_loss_in(recorded_steps[0].loss_dtype)
        first, later = bands
        loss_bands = first.loss, later.loss
        first_norm = later.gradient_norm if reference.has_batch_norm else first.gradient_norm
        gradient_bands = first_norm, later.gradient_norm
        errors = partial(_errors, first_update)
        of_losses, of_norms, of_near_loss = zip(
            *zip_longest(  # step by step, so that the first one that is wrong is named
                errors("loss", loss_bands, losses, reference.losses, [False] * len(rows)),
                errors("gradient norm", gradient_bands, norms, reference.gradient_norms, is_absent),
                errors(
                    "gradient norm nearest the loss",
                    (first.gradient_norm, first.gradient_norm),
                    near_loss_norms[:first_update],
                    reference.near_loss_norms[:first_update],
                    is_absent[:first_update],
                ),
            ),
            strict=True,
        )
        loss_error, norm_error = _largest(of_losses), _largest(of_norms)
        record = {
            "steps": len(rows),
            "loss_error": loss_error,
            "loss_bands": loss_bands,
            "gradient_norm_error": norm_error,
            "gradient_bands": gradient_bands,
            "nearest_error": _largest(of_near_loss),
            "nearest_band": first.gradient_norm,
            "losses": reference.losses,
            "gradient_norms": reference.gradient_norms,
            "loss_errors": of_losses,
            "gradient_norm_errors": of_norms,
        }
        facts = {"loss_error": loss_error, "gradient_norm_error": norm_error}
        return Check(
            correctness={"reference": record},
            facts={name: error for name, error in facts.items() if error is not None},
            flags=(UNCHECKED,) if norm_error is None else (),
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
        return self._run_isolated([(s.batches, s.skipped) for s in recorded_steps], start)

    def _run_isolated(
        self, steps: Sequence[StepInput], start: RandomState
    ) -> _ReferenceSteps | Check:
        """Run the reference from `start`, preserving generators and memory."""
        current_state = RandomState.capture(self.device)
        searches = torch.backends.cudnn.benchmark
        start.restore(self.device)
        try:
            torch.backends.cudnn.benchmark = False  # in fp32 a search takes minutes, for few steps
            with catalog.load("precision", "fp32")().switches():
                return self._run_if_it_fits(steps)
        finally:
            torch.backends.cudnn.benchmark = searches
            current_state.restore(self.device)
            release_memory(self.device)

    def _run_if_it_fits(self, steps: Sequence[StepInput]) -> _ReferenceSteps | Check:
        """Run the reference's steps, or record why it is unavailable."""
        try:
            with host_memory_limited(self.host_bytes and self.host_bytes()):
                return self._run(steps)
        except _DoesNotFitError as error:  # whose traceback refers to what is to be released
            reason = str(error)
        release_memory(self.device)
        record = {"unchecked": f"the fp32 reference does not fit into memory: {reason}"}
        return Check(correctness={"reference": record}, flags=(UNCHECKED,))

    def _run(self, steps: Sequence[StepInput]) -> _ReferenceSteps | Check:
        with self._within_memory():
            fp32 = catalog.load("precision", "fp32")()
            module = build_model(
                self.workload, seed=self.seed, device=self.device, precision=fp32, is_eager=True
            ).train()
        if reason := self._incomparable_reason(module):
            return Check(correctness={"reference": {"not_compared": reason}})
        if self.averaging and self.agreement.world_size > 1:
            batch = cast_floating(steps[0][0][0], torch.float32)
            refuse_sum(self.workload.loss, module, batch, self.agreement)
        near_loss_parameters = well_conditioned_parameters(module)
        updates = _TorchUpdates(module, self)
        losses, norms, near_loss_norms = [], [], []
        start = RandomState.capture(self.device)
        for number, (batches, skipped) in enumerate(steps, 1):
            with self._within_memory():
                losses.append(self._backward(module, batches))
            if number == 1 and self.workload.section.compile != "none":
                drawn = RandomState.capture(self.device) != start
                if not self.agreement.everywhere(not drawn):
                    reason = "a compiled model, as by dropout, draws different random numbers"
                    return Check(correctness={"reference": {"not_compared": reason}})
            if self.averaging and self.agreement.world_size > 1:
                _average_gradients(module, self.agreement.world_size)
            norms.append(_norm(updates.parameters))
            near_loss_norms.append(_norm(near_loss_parameters))
            if number < len(steps):
                with self._within_memory():
                    updates.update(skipped=skipped)
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

    @contextmanager
    def _within_memory(self) -> Iterator[None]:
        """Context of an allocation.

        Raises:
            _DoesNotFitError: a rank, perhaps another one, ran out of memory.
        """
        reason = ""
        try:
            yield
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            reason = f"{type(error).__name__}: {error_text(error)}".partition("\n")[0]
        if not self.agreement.everywhere(not reason):
            raise _DoesNotFitError(reason or "an allocation failed on another rank")

    def _incomparable_reason(self, module: nn.Module) -> str | None:
        """Reason the measured model differs from the reference by design, or None."""
        if not self.shares_batch:
            return None
        if any(isinstance(m, _DROPOUT) and m.p > 0 for m in module.modules()):
            return "ranks that share a model draw dropout separately; set its rate to 0 to compare"
        if has_batch_norm(module):
            return "ranks that share a model may normalize partial batches"
        return None

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

    def __init__(self, module: nn.Module, reference: Fp32Reference):
        training, device = reference.training, reference.device
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        # A fused optimizer is called for skipped steps, too, and the schedule moves with its calls.
        if (own := reference.workload.optimizer(self.parameters)) is not None:
            self._optimizer, self._moves_when_skipped = own, bool(own.defaults.get("fused"))
        else:
            builder = catalog.load("optimizers", training.optimizer)
            self._moves_when_skipped = builder(training, device).fused
            unfused = training.model_copy(update={"fused": False})
            self._optimizer = builder(unfused, device).build(self.parameters)
        schedule = catalog.load("schedulers", training.scheduler)
        self._scheduler = schedule.build(self._optimizer, training.schedule_length)
        self._clipping = training.gradient_clipping

    def update(self, *, skipped: bool) -> None:
        """Apply the gradients, or discard them if `skipped`."""
        if skipped:
            self._optimizer.zero_grad(set_to_none=True)
        elif self._clipping is not None:
            nn.utils.clip_grad_norm_(self.parameters, self._clipping)
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


def _norm(parameters: Sequence[nn.Parameter]) -> float:
    gradients = [values_of(p.grad) for p in parameters if p.grad is not None]
    return hypot(*(float(torch.linalg.vector_norm(g)) for g in gradients))


def _average_gradients(module: nn.Module, ranks: int) -> None:
    """Average gradients in the same order on every rank; missing ones count as zero."""
    for parameter in module.parameters():
        if parameter.requires_grad:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad)
            parameter.grad /= ranks


def _errors(
    first_update: int,
    name: str,
    bands: tuple[float, float],
    values: Sequence[float],
    expected_values: Sequence[float],
    is_absent: Sequence[bool],
) -> Iterator[float | None]:
    """Error of each step, relative to the largest reference value so far; None if absent.

    There is none to compare where it `is_absent`, as the norm of a skipped step. `bands` are those
    of the steps up to and including the first update, and of later ones. Relative to its own step,
    the error of a loss that falls to zero would be unbounded.

    Raises:
        CorrectnessError: an error is beyond its band, or the reference is not finite.
    """
    scale = 0.0
    key = f"measure.check_{'loss' if name == 'loss' else 'gradient'}_band"
    rows = zip(values, expected_values, is_absent, strict=True)
    for step, (value, expected, skips) in enumerate(rows, 1):
        if not isfinite(expected):
            raise CorrectnessError(f"step {step}: the {name} of plain fp32 is {expected}")
        scale = max(scale, abs(expected))
        if skips:
            yield None
            continue
        difference = abs(value - expected)
        error = difference / scale if scale else float(difference > 0)
        band = bands[step > first_update]
        if not error <= band:
            raise CorrectnessError(
                f"step {step}: the {name} is {value:.6g}, but {expected:.6g} in plain fp32: the "
                f"error of {error:.2g} relative to {scale:.6g} exceeds {band:g} ({key})"
            )
        yield error


def _largest(errors: Sequence[float | None]) -> float | None:
    """Largest error; None if every step was skipped."""
    return max((error for error in errors if error is not None), default=None)
