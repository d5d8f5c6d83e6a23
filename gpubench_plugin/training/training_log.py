"""Writes an untimed training into the journal: its steps and its epochs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from math import fsum
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from gpubench_plugin.core.events import EpochEvent, TrainingStepEvent
from gpubench_plugin.measure.protocols import Log
from gpubench_plugin.ranks.agreement import RankAgreement
from gpubench_plugin.training.check import LossFunction, require_finite
from gpubench_plugin.training.evaluation import Evaluation
from gpubench_plugin.workloads.base import Batch, Workload


class TrainingClock:
    """Seconds of training since its start, without evaluations on the way."""

    def __init__(self) -> None:
        self._start = perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds until now, without waiting for what is queued on the device."""
        return perf_counter() - self._start

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Context of what is not training."""
        paused_at = perf_counter()
        try:
            yield
        finally:
            self._start += perf_counter() - paused_at


@dataclass(eq=False, repr=False, kw_only=True)
class TrainingLog:
    """Steps and epochs of an untimed training, read from the device only for logging.

    Every `interval` steps, and on :meth:`close`, it logs the step, its mean loss of all ranks, the
    `state`, and the samples per second since the line before. Tensors of the state are read with
    the losses.

    Loss, accuracy and rate of an epoch, a pass over the data, are read at its end. They are means
    over its batches of all ranks, by the weights that each batch met, as trainers report them. The
    accuracy is of the logits that the loss is computed from, and missing where the model does not
    classify, or where the loss does not come from ``Workload.forward``, as in one compiled region
    of model and loss. Without `batches_per_epoch` there are no epochs.
    """

    log: Log
    workload: Workload[Any]
    agreement: RankAgreement
    interval: int
    state: Callable[[], Mapping[str, object]]
    samples_per_step: int
    """Samples of all ranks."""
    samples_per_batch: int
    """Likewise."""
    batches_per_epoch: int | None
    checks: bool = True
    """Whether losses must be finite."""
    batches_before: int = 0
    """Batches of the data that were trained on before, as by the run that is resumed."""
    steps_before: int = 0
    """Optimizer steps taken before, likewise."""
    clock: TrainingClock = field(default_factory=TrainingClock)
    _pending: list[Tensor] = field(default_factory=list, init=False)
    _step_losses: list[float] = field(default_factory=list, init=False)
    _read_s: float = field(default=0.0, init=False)
    _losses: list[Tensor] = field(default_factory=list, init=False)
    _correct: list[Tensor] = field(default_factory=list, init=False)
    _outputs: list[tuple[Tensor, Tensor]] = field(default_factory=list, init=False)
    _ended_s: float = field(default=0.0, init=False)
    _ended: list[dict[str, Any]] = field(default_factory=list, init=False)

    @property
    def _step(self) -> int:
        """Number of the last step."""
        return self.steps_before + len(self._step_losses) + len(self._pending)

    def close(self) -> list[float]:
        """Losses of all steps.

        Raises:
            CorrectnessError: a loss read now is not finite.
        """
        if self._pending:
            self._read()
        return self._step_losses

    def _read(self) -> None:
        state: dict[str, Any] = {**self.state()}
        steps, first_step = len(self._pending), self._step - len(self._pending) + 1
        tensors = {name: value for name, value in state.items() if isinstance(value, Tensor)}
        values = torch.stack([*self._pending, *tensors.values()]).tolist()
        self._pending.clear()
        for step, loss in enumerate(self.agreement.mean(values[:steps]), first_step):
            self._step_losses.append(loss)
            if self.checks:
                require_finite(loss, step=step)
        for (name, tensor), value in zip(tensors.items(), values[steps:], strict=True):
            state[name] = value if tensor.is_floating_point() else int(value)
        duration_s, self._read_s = self.clock.seconds - self._read_s, self.clock.seconds
        event = TrainingStepEvent(
            step=self._step,
            loss=self._step_losses[-1],
            samples_per_s=steps * self.samples_per_step / duration_s,
            **state,
        )
        self.log(event.line())

    def losses(self, loss_of: LossFunction) -> LossFunction:
        """Wrap `loss_of` to record the losses, and the logits of a classifier, on the device."""
        if self.batches_per_epoch is None:
            return loss_of
        if self.workload.classifies and loss_of == self.workload.loss:
            loss_of = self._with_logits()

        def recorded_loss(module: nn.Module, batch: Batch) -> Tensor:
            loss = loss_of(module, batch)
            self._losses.append(loss.detach())
            return loss

        return recorded_loss

    def end_step(self, loss: Tensor) -> bool:
        """End an optimizer step; return whether it completed an epoch, still to be written.

        Raises:
            CorrectnessError: a loss read now is not finite.
        """
        self._pending.append(loss)
        if (len(self._step_losses) + len(self._pending)) % self.interval == 0:
            self._read()
        # Not within the step, of which the first is timed.
        self._correct += [(logits.argmax(-1) == y).float().mean() for logits, y in self._outputs]
        self._outputs.clear()
        epochs = list(self._completed_epochs())
        if not epochs:
            return False
        now_s = self.clock.seconds  # after the losses were read, which waits for the device
        samples = sum(epoch["samples"] for epoch in epochs)
        for epoch in epochs:  # of several that one step completed each has its part of the time
            duration_s = (now_s - self._ended_s) * epoch["samples"] / samples
            rate = epoch["samples"] / duration_s
            self._ended.append({**epoch, "duration_s": duration_s, "samples_per_s": rate})
        self._ended_s = now_s
        return True

    def write(self, evaluation: Evaluation | None = None) -> None:
        """Write the completed epochs; the `evaluation` is that after the last of them."""
        metrics: dict[str, Any] = {} if evaluation is None else evaluation.metrics
        for epoch in self._ended:
            held_out = metrics if epoch is self._ended[-1] else {}
            self.log(EpochEvent(**epoch, **held_out).line())
        self._ended.clear()

    def _completed_epochs(self) -> Iterator[dict[str, Any]]:
        """Number, loss and accuracy of each completed epoch.

        The first has fewer batches if a training resumed within it.
        """
        length = self.batches_per_epoch
        while length and len(self._losses) >= (count := length - self.batches_before % length):
            losses, correct = self._losses[:count], self._correct[:count]
            del self._losses[:count], self._correct[:count]
            values = torch.stack([*losses, *correct]).tolist()
            sums = fsum(values[:count]), fsum(values[count:])
            loss, share = self.agreement.mean([total / count for total in sums])
            self.batches_before += count
            yield {
                "epoch": self.batches_before // length,
                "step": self._step,
                "loss": loss,
                **({"accuracy": share} if len(correct) == count else {}),
                "samples": count * self.samples_per_batch,
            }

    def _with_logits(self) -> LossFunction:
        """The workload's loss, which keeps the logits of its forward pass, and the targets."""
        observed, forward = copy(self.workload), self.workload.forward

        def kept_forward(module: nn.Module, batch: Batch) -> Tensor:
            logits = forward(module, batch)
            self._outputs.append((logits.detach(), batch.targets))
            return logits

        observed.forward = kept_forward  # type: ignore[method-assign] # of this copy alone
        return observed.loss
