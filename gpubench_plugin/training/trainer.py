"""Training loop as a benchmark."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from statistics import median
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

from gpubench_plugin.distributed import RankAgreement
from gpubench_plugin.environment import synchronize, timed_s
from gpubench_plugin.errors import UsageProblem
from gpubench_plugin.records import Check, Work
from gpubench_plugin.training.bands import nearest_the_loss
from gpubench_plugin.training.check import (
    LossHistory,
    StepRecorder,
    check_loss_drop,
    require_finite,
    require_gradients,
    require_scalar_loss,
    require_updates,
    steps_of_check,
)
from gpubench_plugin.training.model import load_model_state, model_state, run_fake_step
from gpubench_plugin.training.optimization import Optimization
from gpubench_plugin.training.seeding import RandomState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import torch
    from torch import Tensor, nn

    from gpubench_plugin.config import PrecisionSection, TrainingSection
    from gpubench_plugin.distributed.parallelism import PipelinePasses
    from gpubench_plugin.measure import Log
    from gpubench_plugin.precision import Precision
    from gpubench_plugin.training.check import LossFunction
    from gpubench_plugin.training.data import DataSource
    from gpubench_plugin.training.optimization import GlobalNorm
    from gpubench_plugin.training.reference import Fp32Reference
    from gpubench_plugin.workloads import Batch, Workload

PAIRS: Final = 10
"""Steps with and without an exchange that are timed."""


class Trainer:
    """Trains `module` on `data`, one optimizer step per call of :meth:`step`.

    Between :meth:`begin` and :meth:`finish` nothing reads from the device, so that steps queue up
    on it; the exception is torch's own: a GradScaler waits for an optimizer that is not fused.

    Several ranks find the same in their checks through `agreement`. `no_sync` gives the context
    in which gradients stay on their rank, and `differs_from_one_process` why what the ranks train
    is not what one process would with the global batch (None: it is), which goes on record. The
    first steps of the check are compared with those of a `reference`, for which `global_norm` is
    the norm of gradients that are spread over the ranks. `passes` stands for the loss and its
    backward pass where a parallelism has its own way; `ranks_per_batch` ranks work on the same
    batch, of which each counts an equal part.

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
        agreement: RankAgreement | None = None,
        differs_from_one_process: str | None = None,
        global_norm: GlobalNorm | None = None,
        reference: Fp32Reference | None = None,
        passes: PipelinePasses | None = None,
        ranks_per_batch: int = 1,
    ):
        self._module = module.train()
        self._workload = workload
        self._data = data
        self._precision = precision
        self._training = training
        self._accumulation_steps = training.accumulation_steps
        self._device = device
        self._no_sync = nullcontext if no_sync is None else no_sync
        self._agreement = agreement or RankAgreement()
        differs = {"differs_from_one_process": differs_from_one_process}
        self._ranks_record = {} if self._agreement.world_size == 1 else differs
        self._optimization = Optimization(
            module.parameters(),
            training=training,
            device=device,
            scaler=precision.scaler(
                device,
                init_scale=precision_section.init_scale,
                growth_interval=precision_section.growth_interval,
            ),
            global_norm=global_norm,
        )
        self._reference = reference
        self._passes = passes
        self._loss_of: LossFunction = workload.loss if passes is None else passes
        self._ranks_per_batch = ranks_per_batch
        self._check_steps = steps_of_check(training, data)
        self._loss: Tensor | None = None
        self._data_wait_ns = 0
        self._batches = 0

    @property
    def samples_per_step(self) -> int:
        """Samples per call of :meth:`step` on this rank."""
        return self._data.batch_size * self._accumulation_steps // self._ranks_per_batch

    @property
    def tokens_per_step(self) -> int | None:
        """Tokens per call of :meth:`step` on this rank; None if samples are not made of tokens."""
        return self._workload.tokens(self.samples_per_step)

    @property
    def last_loss(self) -> Tensor:
        """Loss of the last batch on this rank, on the device."""
        assert self._loss is not None
        return self._loss

    @property
    def total_steps(self) -> int:
        """Optimizer steps in total, including those before a checkpoint."""
        return self._optimization.total_steps

    @property
    def calls(self) -> int:
        """Equal to the optimizer steps: each call of :meth:`step` is one."""
        return self.total_steps

    def state_dict(self) -> dict[str, Any]:
        """State of model, optimizer, schedule, scaler, steps and data, by reference."""
        state = {"model": model_state(self._module), "batches": self._batches}
        return {**state, **self._optimization.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from the state of an equal trainer, including the data position."""
        load_model_state(self._module, state["model"])
        self._optimization.load_state_dict(state)
        self._batches = state["batches"]
        for _ in range(self._batches):
            next(self._data)

    def step(self) -> None:
        """Run one optimizer step (hot path)."""
        self._gradients(self._data, self._loss_of)
        self._optimization.update()
        self._batches += self._accumulation_steps

    def step_without_exchange(self) -> None:
        """Run one step without gradient exchange; the ranks' models diverge."""
        with self._no_sync():
            self._gradients(self._data, self._loss_of)
        self._optimization.update()

    def prepare(self, log: Log) -> Check:
        """Train untimed, and check that the model learns.

        The steps repeat one fixed batch, or with ``training.epochs`` pass over the data. The first
        one is timed and looked at closely, the first few are compared with the reference.

        Raises:
            CorrectnessError: a loss is not a finite scalar or does not fall as
                ``training.loss_drop`` asks, a gradient is missing or not finite, every step was
                skipped by the GradScaler, or the first steps are not the reference's.
        """
        if self._reference is not None and self.calls and self._training.resume is None:
            raise UsageProblem(
                f"the trainer has already taken {self.calls} steps, but its check compares "
                "the first steps with fp32; measure before stepping, or set "
                "measure.check=false"
            )
        self._module.train()  # something else in the test may have put it into eval mode
        start = RandomState.capture(self._device)
        self._optimization.reset()
        history = LossHistory(
            log,
            every=self._training.log_every,
            state=self._progress,
            agreement=self._agreement,
        )
        reference = self._reference
        watch = StepRecorder(
            0 if reference is None else reference.steps,
            self._optimization,
            nearest=nearest_the_loss(self._module),
        )
        over_epochs = self._training.epochs is not None
        check_batches: Iterator[Batch] = (
            self._data if over_epochs else repeat(self._data.fixed_batch())
        )
        if reference is not None:
            check_batches = reference.precompute_first_step(check_batches, start=start)
        batches = watch.batches(check_batches)
        loss_of = watch.losses(self._loss_of)
        first_step_s = self._first_step(batches, loss_of, watch)
        history.add(self.last_loss)
        for _ in range(self._check_steps - 1):
            self._gradients(batches, loss_of)
            watch.before_update()
            self._optimization.update()
            watch.after_update()
            history.add(self.last_loss)
        self._batches += self._check_steps * self._accumulation_steps if over_epochs else 0
        losses = history.close()
        skipped = self._optimization.skipped_steps()
        require_updates(self._check_steps, skipped)
        compared = Check() if reference is None else reference.compare(watch.steps, start=start)
        # What goes on from a checkpoint may have little left to lose.
        is_resumed = self._training.resume is not None
        loss_ratio = check_loss_drop(losses, limit=None if is_resumed else self._training.loss_drop)
        ignore_reason = self._training.loss_drop_ignored
        return Check(
            correctness={
                "losses": losses,
                "loss_drop": loss_ratio,
                **({} if ignore_reason is None else {"loss_drop_lapsed": ignore_reason}),
                "skipped_steps": skipped,
                **self._ranks_record,
                **compared.correctness,
            },
            facts={
                **compared.facts,
                "first_step_s": first_step_s,
                "loss_first": losses[0],
                "loss_last": losses[-1],
            },
            flags=compared.flags,
        )

    def begin(self) -> None:
        """Reset the counts."""
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
        """Forward and backward pass of one step on fake tensors, for FLOP counting."""
        run_fake_step(self._workload, samples=self.samples_per_step, backward=True)

    def _gradients(self, batches: Iterator[Batch], loss_of: LossFunction) -> None:
        for _ in range(self._accumulation_steps - 1):
            with self._no_sync():
                self._backward(batches, loss_of)
        self._backward(batches, loss_of)

    def _backward(self, batches: Iterator[Batch], loss_of: LossFunction) -> None:
        requested_ns = perf_counter_ns()
        batch = next(batches)
        self._data_wait_ns += perf_counter_ns() - requested_ns
        if self._passes is not None:
            self._loss = loss_of(self._module, batch)
            return
        with self._precision.forward_context(self._device):
            loss = loss_of(self._module, batch)
        self._loss = loss.detach()
        if self._accumulation_steps > 1:
            loss = loss / self._accumulation_steps
        self._optimization.backward(loss)

    def _first_step(
        self, batches: Iterator[Batch], loss_of: LossFunction, watch: StepRecorder
    ) -> float:
        """Run one step with all checks; return its duration without the gradient checks."""
        losses: list[Tensor] = []
        gradients = partial(self._gradients, batches, require_scalar_loss(loss_of, losses))
        spent_s = timed_s(gradients, self._device)
        # Not before the backward pass, in which other ranks would wait for one that gave up.
        require_finite(self._mean(losses), step=1)
        # Before the update, whose clipping would spread a NaN to all gradients. A scaled gradient
        # that is not finite is a step to skip, not an error.
        must_be_finite = self._optimization.scaler is None
        names = None if self._passes is None else self._passes.parameter_names
        require_gradients(
            self._module,
            require_finite_gradients=must_be_finite,
            agreement=self._agreement,
            names=names,
        )
        watch.before_update()
        spent_s += timed_s(self._optimization.update, self._device)
        watch.after_update()
        return spent_s

    def _mean(self, losses: Sequence[Tensor]) -> float:
        """Mean of `losses` over steps and ranks; not finite if any is not."""
        (mean,) = self._agreement.mean([sum(map(float, losses)) / len(losses)])
        return mean

    def _progress(self) -> Mapping[str, object]:
        return {
            "learning_rate": self._optimization.learning_rate,
            "skipped_steps": self._optimization.skipped_steps(),
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class ExposedCommunication:
    """Times steps with and without gradient exchange alternately, after the measurement.

    A step here begins on all ranks at once, after `meet`, and lasts until the device is done. It
    comes after the timed calls because weights that are not exchanged drift apart.
    """

    exchanging: Callable[[], None]
    alone: Callable[[], None]
    meet: Callable[[], None]
    device: torch.device

    def facts(self) -> Mapping[str, float]:
        """Medians ``step_exchanging_s`` and ``step_alone_s`` of this rank."""
        for step in (self.exchanging, self.alone):
            self._seconds(step)
        pairs = [(self._seconds(self.exchanging), self._seconds(self.alone)) for _ in range(PAIRS)]
        with_exchange_s, without_exchange_s = zip(*pairs, strict=True)
        return {
            "step_exchanging_s": median(with_exchange_s),
            "step_alone_s": median(without_exchange_s),
        }

    def _seconds(self, step: Callable[[], None]) -> float:
        synchronize(self.device)
        self.meet()
        return timed_s(step, self.device)
