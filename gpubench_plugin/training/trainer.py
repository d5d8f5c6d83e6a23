"""Training loop as a benchmark."""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from math import isfinite
from statistics import median
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.core.events import PhaseEvent
from gpubench_plugin.core.records import Check, Work
from gpubench_plugin.environment.devices import synchronize, timed_s
from gpubench_plugin.ranks.agreement import RankAgreement
from gpubench_plugin.training.bands import well_conditioned_parameters
from gpubench_plugin.training.check import (
    LossFunction,
    StepRecorder,
    check_loss_drop,
    refuse_autocast,
    refuse_sparse_gradients,
    require_finite,
    require_gradients,
    require_scalar_loss,
    require_updates,
    steps_of_check,
)
from gpubench_plugin.training.compile import loss_function
from gpubench_plugin.training.model import load_model_state, model_state
from gpubench_plugin.training.optimization import GlobalNorm, Optimization
from gpubench_plugin.training.seeding import RandomState
from gpubench_plugin.training.training_log import TrainingLog
from gpubench_plugin.workloads.base import Batch, Workload, run_fake_step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import torch
    from torch import Tensor, nn

    from gpubench_plugin.config.sections import PrecisionSection, TrainingSection
    from gpubench_plugin.measure.protocols import Log
    from gpubench_plugin.precision.base import Precision
    from gpubench_plugin.training.data.base import DataSource
    from gpubench_plugin.training.evaluation import Evaluation
    from gpubench_plugin.training.parallelism.base import Passes
    from gpubench_plugin.training.reference import Fp32Reference

REHEARSED_STEPS: Final = 2
"""The first makes the optimizer's states, beside which the second runs."""

PAIRS: Final = 10
"""Timed steps with and without gradient exchange: a median of ten is robust against some slow
steps at the cost of twenty."""


@dataclass(eq=False, repr=False, kw_only=True)  # pytest prints what a failing test gets
class Trainer:
    """Trains `module` on `data`, one optimizer step per call of :meth:`step`.

    Between :meth:`begin` and :meth:`finish` nothing reads from the device, so that steps queue up
    on it, except that torch's GradScaler synchronizes for an optimizer that is not fused.

    `agreement` makes the checks agree on all ranks. `no_sync` is the context without gradient
    exchange. `differs_from_one_process` goes on record: why the training differs from that of one
    process with the global batch, or None. The check compares its first steps with a `reference`,
    using `global_norm` for gradients spread over the ranks. `passes` replaces the loss and its
    backward pass under pipeline parallelism. Of `ranks_per_batch` ranks with the same batch each
    counts an equal part. `evaluate` evaluates the module after each untimed epoch. Without `checks`
    it trains as it would with them, and judges nothing. If it `times_exchange`, steps with and
    without it follow the timed calls.

    Raises:
        UsageProblem: ``training.epochs`` of data without an end.
    """

    module: nn.Module
    workload: Workload[Any]
    data: DataSource
    precision: Precision
    training: TrainingSection
    precision_section: PrecisionSection
    device: torch.device
    no_sync: Callable[[], AbstractContextManager[Any]] = nullcontext
    agreement: RankAgreement = field(default_factory=RankAgreement)
    differs_from_one_process: str | None = None
    global_norm: GlobalNorm | None = None
    reference: Fp32Reference | None = None
    passes: Passes | None = None
    ranks_per_batch: int = 1
    checks: bool = True
    evaluate: Callable[[], Evaluation] | None = None
    times_exchange: bool = False
    _loss: Tensor | None = field(default=None, init=False)
    _data_wait_ns: int = field(default=0, init=False)
    _batches: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.module.train()
        self._accumulation_steps = self.training.accumulation_steps
        self._optimization = Optimization(
            self.module.parameters(),
            training=self.training,
            device=self.device,
            scaler=self.precision.scaler(
                self.device,
                init_scale=self.precision_section.init_scale,
                growth_interval=self.precision_section.growth_interval,
            ),
            global_norm=self.global_norm,
            own_optimizer=self.workload.optimizer,
        )
        self.optimizer = self._optimization.optimizer
        """That of torch, for other loops over the same model."""
        self._loss_of: LossFunction = self.passes or loss_function(self.module, self.workload)
        self._check_steps = steps_of_check(self.training, self.data)

    @property
    def samples_per_step(self) -> int:
        """Samples per call of :meth:`step` on this rank."""
        return self.data.batch_size * self._accumulation_steps // self.ranks_per_batch

    @property
    def last_loss(self) -> Tensor:
        """Loss of the last batch on this rank, on the device."""
        assert self._loss is not None
        return self._loss

    @property
    def calls(self) -> int:
        """Optimizer steps in total, including those before a checkpoint."""
        return self._optimization.total_steps

    def state_dict(self) -> dict[str, Any]:
        """State of model, optimizer, schedule, scaler, steps and data, by reference."""
        state = {"model": model_state(self.module), "batches": self._batches}
        return {**state, **self._optimization.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from the state of an equal trainer, including the data position."""
        load_model_state(self.module, state["model"])
        self._optimization.load_state_dict(state)
        self._batches = state["batches"]
        for _ in range(self._batches):
            next(self.data)

    def step(self) -> None:
        """Run one optimizer step (hot path)."""
        self._gradients(self.data, self._loss_of)
        self._optimization.update()
        self._batches += self._accumulation_steps

    def step_without_exchange(self) -> None:
        """Run one step without gradient exchange; the ranks' models diverge."""
        with self.no_sync():
            self._gradients(self.data, self._loss_of)
        self._optimization.update()

    def prepare(self, log: Log) -> Check:
        """Train untimed, and check that the model learns.

        The steps repeat one fixed batch, or with ``training.epochs`` pass over the data. The first
        step is timed, the first few are compared with the reference.

        Raises:
            Misuse: autocast is on around the benchmark.
            CorrectnessError: a loss is not a finite scalar or does not fall as
                ``training.loss_drop`` requires, a gradient is missing or not finite, the GradScaler
                skipped every step, or the first steps differ from the reference's.
        """
        if self.reference is not None and self.calls and self.training.resume is None:
            raise UsageProblem(
                f"the trainer has already taken {self.calls} steps, but its check compares "
                "the first steps with fp32; measure before stepping, or set "
                "measure.check=false"
            )
        refuse_autocast(self.device)
        self.module.train()  # something else in the test may have put it into eval mode
        start = RandomState.capture(self.device)
        self._optimization.reset()
        reference = self.reference
        over_epochs = self.training.epochs is not None
        recorder, check_batches = self._recorder(
            self.data if over_epochs else repeat(self.data.fixed_batch()), start=start
        )
        with self.recording(log, epochs=over_epochs) as training_log:
            first_step_s = self._train(check_batches, recorder, training_log, log)
            losses = training_log.close()
        self._batches += self._check_steps * self._accumulation_steps if over_epochs else 0
        skipped = self._optimization.skipped_steps()
        if self.checks:
            require_updates(self._check_steps, skipped)
        comparison = Check()
        if reference is not None:
            log(PhaseEvent(phase="check").line())
            comparison = reference.compare(recorder.steps, start=start)
        # The loss of a resumed training may already be near its minimum.
        judges_loss = self.checks and self.training.resume is None
        loss_ratio = check_loss_drop(
            losses,
            limit=self.training.loss_drop if judges_loss else None,
            advice=(
                "try another training.learning_rate "
                f"({self._optimization.learning_rate:g}) or training.optimizer "
                f"({type(self.optimizer).__name__}), or more training.steps"
            ),
        )
        ignore_reason = self.training.loss_drop_ignored
        ends = {"loss_first": losses[0], "loss_last": losses[-1]}
        return Check(
            correctness={
                "losses": losses,
                "loss_drop": loss_ratio,
                **({} if ignore_reason is None else {"loss_drop_lapsed": ignore_reason}),
                "skipped_steps": skipped,
                **self._setting_record(),
                **comparison.correctness,
            },
            facts={
                **comparison.facts,
                "first_step_s": first_step_s,
                **{name: loss for name, loss in ends.items() if isfinite(loss)},
            },
            flags=comparison.flags,
        )

    def _recorder(
        self, batches: Iterator[Batch], *, start: RandomState, most: int | None = None
    ) -> tuple[StepRecorder, Iterator[Batch]]:
        """Recorder of the steps to compare, at `most` so many, and the batches of all steps."""
        reference, compared_steps = self.reference, 0
        if reference is not None:
            compared_steps = min(reference.steps, most or reference.steps)
            batches = reference.precompute_first_step(batches, start=start)
        parameters = well_conditioned_parameters(self.module)
        return StepRecorder(compared_steps, self._optimization, parameters), batches

    def _train(
        self, batches: Iterator[Batch], recorder: StepRecorder, training_log: TrainingLog, log: Log
    ) -> float:
        """Take the steps of the check; return the duration of the first."""
        first_step_s = self._first_step(batches, recorder)
        log(PhaseEvent(phase="train", steps=self.calls - 1 + self._check_steps).line())
        self._record_step(training_log)
        for _ in range(self._check_steps - 1):
            self._recorded_step(batches, recorder)
            self._record_step(training_log)
        return first_step_s

    @contextmanager
    def recording(self, log: Log, *, epochs: bool) -> Iterator[TrainingLog]:
        """Context of untimed steps with their history, and that of their `epochs` where asked."""
        ranks = self.agreement.world_size
        training_log = TrainingLog(
            log=log,
            workload=self.workload,
            agreement=self.agreement,
            checks=self.checks,
            interval=self.training.log_every,
            state=self._optimization.progress,
            samples_per_step=self.samples_per_step * ranks,
            samples_per_batch=self.data.batch_size * ranks // self.ranks_per_batch,
            batches_per_epoch=self.data.steps_per_epoch if epochs else None,
            batches_before=self._batches,
            steps_before=self.calls,
        )
        loss_of = self._loss_of
        self._loss_of = training_log.losses(loss_of)
        try:
            yield training_log
        finally:
            self._loss_of = loss_of

    def rehearse(self) -> bool:
        """Train a few steps as :meth:`prepare` and the timed calls do; judges nothing.

        Returns whether the reference, if any, fits into memory as well.
        """
        start, reference = RandomState.capture(self.device), self.reference
        recorder, batches = self._recorder(
            repeat(self.data.fixed_batch()), start=start, most=REHEARSED_STEPS
        )
        for _ in range(REHEARSED_STEPS):
            self._recorded_step(batches, recorder)
        if reference is not None and not reference.fits(recorder.steps, start=start):
            return False
        self.step()  # on a batch that a loader may bring
        synchronize(self.device)
        return True

    def begin(self) -> None:
        """Forget the skipped steps and waits of the untimed calls."""
        self._optimization.reset()
        self._data_wait_ns = 0

    def finish(self) -> Mapping[str, float]:
        """``skipped_steps`` and ``data_wait_s`` since :meth:`begin`, and the times of an exchange.

        Raises:
            CorrectnessError: the last loss is not finite, or every step was skipped.
        """
        skipped = self._optimization.skipped_steps()
        if self.checks:
            if self._loss is not None:
                require_finite(self._mean([self._loss]))
            require_updates(self._optimization.steps, skipped)
        counts = {"skipped_steps": float(skipped), "data_wait_s": self._data_wait_ns / 1e9}
        return {**counts, **exchange_times(self)} if self.times_exchange else counts

    def work(self) -> Work:
        """Samples and tokens of one step on this rank."""
        samples = self.samples_per_step
        return Work(samples=samples, tokens=self.workload.tokens(samples))

    def flops_step(self) -> None:
        """Forward and backward pass of one step on fake tensors, for FLOP counting."""
        samples = self.data.batch_size // self.ranks_per_batch
        for _ in range(self._accumulation_steps):
            run_fake_step(self.workload, samples=samples, backward=True)

    def _gradients(self, batches: Iterator[Batch], loss_of: LossFunction) -> None:
        for _ in range(self._accumulation_steps - 1):
            with self.no_sync():
                self._backward(batches, loss_of)
        self._backward(batches, loss_of)

    def _backward(self, batches: Iterator[Batch], loss_of: LossFunction) -> None:
        requested_ns = perf_counter_ns()
        batch = next(batches)
        self._data_wait_ns += perf_counter_ns() - requested_ns
        if self.passes is not None:
            self._loss = loss_of(self.module, batch)
            return
        with self.precision.forward_context(self.device):
            loss = loss_of(self.module, batch)
        self._loss = loss.detach()
        if self._accumulation_steps > 1:
            loss = loss / self._accumulation_steps
        self._optimization.backward(loss)

    def _first_step(self, batches: Iterator[Batch], recorder: StepRecorder) -> float:
        """Run one step with all checks; return its duration without the gradient checks."""
        losses: list[Tensor] = []
        loss_of = require_scalar_loss(self._loss_of, losses, has_graph=self.passes is None)
        gradients = partial(self._gradients, batches, recorder.recorded(loss_of))
        duration_s = timed_s(gradients, self.device)
        if self.checks:
            # After the backward pass, in which other ranks would wait for one that failed.
            require_finite(self._mean(losses), step=1)
            # Before the update, whose clipping would spread a NaN to all gradients. With a scaler a
            # gradient that is not finite makes a skipped step, not an error.
            require_gradients(
                self.module,
                require_finite_gradients=self._optimization.scaler is None,
                agreement=self.agreement,
                names=None if self.passes is None else self.passes.parameter_names,
            )
        recorder.before_update()
        try:
            duration_s += timed_s(self._optimization.update, self.device)
        except RuntimeError:
            refuse_sparse_gradients(self.module)
            raise
        recorder.after_update()
        return duration_s

    def _recorded_step(self, batches: Iterator[Batch], recorder: StepRecorder) -> None:
        self._gradients(batches, recorder.recorded(self._loss_of))
        recorder.before_update()
        self._optimization.update()
        recorder.after_update()

    def _mean(self, losses: Sequence[Tensor]) -> float:
        """Mean of `losses` over steps and ranks; not finite if any is not."""
        (mean,) = self.agreement.mean([sum(map(float, losses)) / len(losses)])
        return mean

    def _setting_record(self) -> dict[str, object]:
        record: dict[str, object] = {}
        if self.training.scheduler != "constant":
            record["schedule_steps"] = self.training.schedule_length
        if self.agreement.world_size > 1:
            record["differs_from_one_process"] = self.differs_from_one_process
        return record

    def _record_step(self, training_log: TrainingLog) -> None:
        if training_log.end_step(self.last_loss):
            with training_log.clock.paused():
                evaluation = None if self.evaluate is None else self.evaluate()
                training_log.write(evaluation)


def exchange_times(trainer: Trainer) -> Mapping[str, float]:
    """Medians ``step_exchanging_s`` and ``step_alone_s`` of this rank, of steps in turns.

    Steps begin on all ranks together and end when the device is idle. They follow the measurement,
    because weights diverge without the exchange.
    """

    def together_s(step: Callable[[], None]) -> float:
        synchronize(trainer.device)
        trainer.agreement.barrier()
        return timed_s(step, trainer.device)

    steps = trainer.step, trainer.step_without_exchange
    pairs = [tuple(map(together_s, steps)) for _ in range(1 + PAIRS)]
    with_exchange_s, without_exchange_s = zip(*pairs[1:], strict=True)  # the first warms up
    return {
        "step_exchanging_s": median(with_exchange_s),
        "step_alone_s": median(without_exchange_s),
    }
