"""The training loop as a thing to measure."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from itertools import repeat
from time import perf_counter, perf_counter_ns
from typing import TYPE_CHECKING, Any

from gpubench_plugin.errors import UsageProblem
from gpubench_plugin.records import Check, Work
from gpubench_plugin.training.agreement import Alone
from gpubench_plugin.training.check import (
    LossHistory,
    loss_drop,
    require_finite,
    require_gradients,
    require_updates,
    scalar,
)
from gpubench_plugin.training.mathematics import run_once
from gpubench_plugin.training.optimization import Optimization
from gpubench_plugin.training.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import torch
    from torch import Tensor, nn

    from gpubench_plugin.configuration.schema import PrecisionSection, TrainingSection
    from gpubench_plugin.precision.base import Precision
    from gpubench_plugin.training.agreement import Agreement
    from gpubench_plugin.training.check import Log, LossFunction
    from gpubench_plugin.training.data.base import DataSource
    from gpubench_plugin.workloads.base import Batch, Workload

DEFAULT_STEPS = 20
"""Length of the untimed check where ``training.steps`` is null."""


class Trainer:
    """Trains `module` on `data`: one call of :meth:`step` is one optimizer step.

    Between :meth:`begin` and :meth:`finish` nothing reads from the device, so that steps can queue
    up on it; the exception is torch's own: an optimizer that is not fused makes a GradScaler wait
    in every step.

    Several ranks find the same in their checks through `agreement`. `no_sync` gives the context
    in which gradients stay on their rank, and `differs_from_one_process` why what the ranks train
    is not what one process would with the global batch (None: it is), which goes on record.

    Raises:
        UsageProblem: ``training.epochs`` of data without an end.
    """

    def __init__(
        self,
        *,
        module: nn.Module,
        workload: Workload[Any],
        data: DataSource,
        precision: Precision,
        training: TrainingSection,
        precision_section: PrecisionSection,
        device: torch.device,
        no_sync: Callable[[], AbstractContextManager[Any]] | None = None,
        agreement: Agreement | None = None,
        differs_from_one_process: str | None = None,
    ):
        self._module = module.train()
        self._workload = workload
        self._data = data
        self._precision = precision
        self._training = training
        self._accumulation_steps = training.accumulation_steps
        self._device = device
        self._no_sync = nullcontext if no_sync is None else no_sync
        self._agreement = Alone() if agreement is None else agreement
        self._differs_from_one_process = differs_from_one_process
        self._optimization = Optimization(
            module.parameters(),
            training=training,
            device=device,
            scaler=precision.scaler(
                device,
                init_scale=precision_section.init_scale,
                growth_interval=precision_section.growth_interval,
            ),
        )
        self._check_steps = _check_steps(training, data)
        self._loss: Tensor | None = None
        self._data_wait_ns = 0

    @property
    def samples_per_step(self) -> int:
        """Samples per call of :meth:`step` on this rank."""
        return self._data.batch_size * self._accumulation_steps

    @property
    def tokens_per_step(self) -> int | None:
        """Tokens per call of :meth:`step` on this rank; None if samples are not made of tokens."""
        tokens = self._workload.tokens_per_sample
        return None if tokens is None else tokens * self.samples_per_step

    def step(self) -> None:
        """One optimizer step: the hot path."""
        self._train(self._data, self._workload.loss)

    def prepare(self, log: Log) -> Check:
        """Train untimed, and check that it is training.

        The steps repeat one fixed batch, or with ``training.epochs`` pass over the data. The first
        one is timed and looked at closely.

        Raises:
            CorrectnessError: a loss is not a finite scalar or does not fall as
                ``training.loss_drop`` asks, a gradient is missing or not finite, or every step was
                skipped by the GradScaler.
        """
        self._optimization.reset()
        history = LossHistory(
            log,
            every=self._training.log_every,
            state=self._progress,
            agreement=self._agreement,
        )
        batches = self._check_batches()
        first_step_s = self._first_step(batches)
        history.add(self._last_loss())
        for _ in range(self._check_steps - 1):
            self._train(batches, self._workload.loss)
            history.add(self._last_loss())
        losses = history.close()
        skipped = self._optimization.skipped_steps()
        require_updates(self._check_steps, skipped)
        drop = loss_drop(losses, limit=self._training.loss_drop)
        return Check(
            correctness={
                "losses": losses,
                "loss_drop": drop,
                "skipped_steps": skipped,
                **self._said_of_ranks(),
            },
            facts={
                "first_step_s": first_step_s,
                "loss_first": losses[0],
                "loss_last": losses[-1],
            },
        )

    def begin(self) -> None:
        """Count from zero."""
        self._optimization.reset()
        self._data_wait_ns = 0

    def finish(self) -> Mapping[str, float]:
        """``skipped_steps`` and ``data_wait_s`` since :meth:`begin`.

        Raises:
            CorrectnessError: the last loss is not finite, or every step was skipped.
        """
        if self._loss is not None:
            require_finite(self._mean([self._loss]))
        skipped = self._optimization.skipped_steps()
        require_updates(self._optimization.steps, skipped)
        return {"skipped_steps": float(skipped), "data_wait_s": self._data_wait_ns / 1e9}

    def work(self) -> Work:
        """Samples and tokens of one step on this rank."""
        return Work(samples=self.samples_per_step, tokens=self.tokens_per_step)

    def flops_step(self) -> None:
        """Forward and backward of one step on tensors without data, for a FLOP counter."""
        run_once(self._workload, samples=self.samples_per_step, backward=True)

    def _train(self, batches: Iterator[Batch], loss_of: LossFunction) -> None:
        self._gradients(batches, loss_of)
        self._optimization.update()

    def _gradients(self, batches: Iterator[Batch], loss_of: LossFunction) -> None:
        for _ in range(self._accumulation_steps - 1):
            with self._no_sync():
                self._backward(batches, loss_of)
        self._backward(batches, loss_of)

    def _backward(self, batches: Iterator[Batch], loss_of: LossFunction) -> None:
        asked = perf_counter_ns()
        batch = next(batches)
        self._data_wait_ns += perf_counter_ns() - asked
        with self._precision.forward_context(self._device):
            loss = loss_of(self._module, batch)
        self._loss = loss.detach()
        if self._accumulation_steps > 1:
            loss = loss / self._accumulation_steps
        self._optimization.backward(loss)

    def _first_step(self, batches: Iterator[Batch]) -> float:
        """Train one step with every check; its duration in seconds without the checks of gradients.

        They stand between the two halves of the step: clipping would spread a NaN to all of them.
        """
        losses: list[Tensor] = []
        wait_for(self._device)
        began = perf_counter()
        self._gradients(batches, scalar(self._workload.loss, losses))
        wait_for(self._device)
        halfway = perf_counter()
        # Not before the backward pass, in which other ranks would wait for one that gave up.
        require_finite(self._mean(losses), step=1)
        # A scaled gradient that is not finite is a step to skip, not an error.
        finite = self._optimization.scaler is None
        require_gradients(self._module, finite=finite, agreement=self._agreement)
        resumed = perf_counter()
        self._optimization.update()
        wait_for(self._device)
        return halfway - began + perf_counter() - resumed

    def _check_batches(self) -> Iterator[Batch]:
        return self._data if self._training.epochs else repeat(self._data.fixed_batch())

    def _mean(self, losses: Sequence[Tensor]) -> float:
        """The mean of `losses` over them and the ranks; not finite if one is not."""
        (mean,) = self._agreement.mean([sum(map(float, losses)) / len(losses)])
        return mean

    def _said_of_ranks(self) -> Mapping[str, object]:
        if self._agreement.world_size == 1:
            return {}
        return {"differs_from_one_process": self._differs_from_one_process}

    def _last_loss(self) -> Tensor:
        assert self._loss is not None
        return self._loss

    def _progress(self) -> Mapping[str, object]:
        return {
            "learning_rate": self._optimization.learning_rate,
            "skipped_steps": self._optimization.skipped_steps(),
        }


def _check_steps(training: TrainingSection, data: DataSource) -> int:
    """Optimizer steps of the untimed check."""
    if training.epochs is None:
        return training.steps or DEFAULT_STEPS
    if data.steps_per_epoch is None:
        raise UsageProblem(
            f"training.epochs={training.epochs}: these data have no epochs; "
            "use training.steps, or data.source=digits"
        )
    return -(-training.epochs * data.steps_per_epoch // training.accumulation_steps)
