"""Time-to-target training on real data as a benchmark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import repeat
from math import ceil
from typing import Any

import torch

from gpubench_plugin.config.sections import TrainingSection
from gpubench_plugin.core.errors import CorrectnessError, Misuse, UsageProblem
from gpubench_plugin.core.events import ConvergenceEvent, EvaluationEvent, PhaseEvent
from gpubench_plugin.core.records import Check, Work
from gpubench_plugin.environment.devices import timed_s
from gpubench_plugin.measure.protocols import Log
from gpubench_plugin.training.evaluation import Evaluation, Evaluator
from gpubench_plugin.training.trainer import Trainer
from gpubench_plugin.training.training_log import TrainingLog
from gpubench_plugin.workloads.base import Workload, run_fake_step


@dataclass(frozen=True, kw_only=True)
class Milestone:
    """An evaluation on the way to the target, and whether it is the best so far."""

    step: int
    evaluation: Evaluation
    is_best: bool
    trainer: Trainer

    @property
    def point(self) -> dict[str, Any]:
        """A point of the curve, in the journal and in the record."""
        return {"step": self.step, "is_best": self.is_best, **self.evaluation.metrics}


@dataclass(frozen=True, kw_only=True)
class Target:
    """Target for held-out samples: an accuracy or a loss."""

    accuracy: float | None
    loss: float | None

    @staticmethod
    def refusal(
        training: TrainingSection, model: str | None, workload: type[Workload[Any]] | None
    ) -> str:
        """Reason why it is no target for the `model`, of a known `workload`; empty if it is one."""
        accuracy, loss = training.target_accuracy, training.target_loss
        if (accuracy is None) == (loss is None):
            return (
                f"training.target_accuracy={accuracy} and training.target_loss={loss}; allowed: "
                "exactly one target, with null for the other"
            )
        if accuracy is not None and workload is not None and not workload.classifies:
            return (
                f"training.target_accuracy={accuracy}: {model} is not a classifier; allowed: "
                "training.target_loss"
            )
        return ""

    @property
    def text(self) -> str:
        """The target as configured."""
        if self.accuracy is None:
            return f"training.target_loss={self.loss}"
        return f"training.target_accuracy={self.accuracy}"

    def value(self, evaluation: Evaluation) -> float:
        """The value compared with the target."""
        accuracy = None if self.accuracy is None else evaluation.accuracy
        return evaluation.loss if accuracy is None else accuracy

    def is_better(self, first: Evaluation, second: Evaluation) -> bool:
        """Whether `first` is better than `second` with respect to the target."""
        better, worse = (second, first) if self.accuracy is None else (first, second)
        return self.value(better) > self.value(worse)

    def is_reached(self, evaluation: Evaluation) -> bool:
        """Whether the target is reached."""
        if self.loss is not None:
            return evaluation.loss <= self.loss
        return self.accuracy is not None and self.value(evaluation) >= self.accuracy


@dataclass(eq=False, repr=False, kw_only=True)
class ReproducibleTraining:
    """A reproducible training: same weights, batch order and random numbers each time.

    It starts from the current weights of the module that `evaluator` evaluates; `build_trainer`
    makes a trainer of that on the same data, with a fresh optimizer.
    """

    evaluator: Evaluator
    build_trainer: Callable[[], Trainer]
    seed: int
    _trainer: Trainer | None = field(default=None, init=False)
    _counts: Counter[str] = field(default_factory=Counter, init=False)

    def __post_init__(self) -> None:
        self._initial_state = deepcopy(self.evaluator.module.state_dict())

    @property
    def trainer(self) -> Trainer:
        """Trainer since the last :meth:`restart`.

        Raises:
            Misuse: there was none, as the benchmark has no ``setup``.
        """
        if self._trainer is None:
            raise Misuse(
                "the training was not restarted before it was measured; write "
                "gpubench(convergence, setup=convergence.restart)"
            )
        return self._trainer

    def restart(self) -> None:
        """Restore the initial state, keeping counts.

        Raises:
            CorrectnessError: the last training failed its checks.
        """
        self._close()
        self.evaluator.module.load_state_dict(self._initial_state)
        self.evaluator.data.restart()
        torch.manual_seed(self.seed)
        self._trainer = self.build_trainer()
        self._trainer.begin()

    def train(self, steps: int) -> None:
        """Train for some optimizer steps (hot path)."""
        step = self.trainer.step
        for _ in repeat(None, steps):
            step()

    def reset_counts(self) -> None:
        """Reset the counts, without those of the current training."""
        self._trainer = None
        self._counts.clear()

    def counts(self) -> Mapping[str, float]:
        """Counts of all trainings since :meth:`reset_counts`, summed.

        Raises:
            CorrectnessError: the last training failed its checks.
        """
        self._close()
        return dict(self._counts)

    def _close(self) -> None:
        if self._trainer is not None:
            self._counts.update(self._trainer.finish())
            self._trainer = None


@dataclass(eq=False, repr=False, kw_only=True)
class TimeToTarget:
    """Trains to a target; each call of :meth:`step` is a training of fixed length.

    An untimed training, evaluated every ``training.evaluate_every`` steps, finds the step at which
    the target is reached. The timed calls repeat it up to that step without evaluations. Call
    :meth:`restart`, untimed, before each.

    `reference` is the same training in fp32, whose loss on held-out samples must be near, or None
    for fp32 itself. `observers` are called with every milestone on the way to the target.
    """

    course: ReproducibleTraining
    training: TrainingSection
    reference: Callable[[], AbstractContextManager[ReproducibleTraining]] | None = None
    observers: list[Callable[[Milestone], object]] = field(default_factory=list, init=False)
    calls: int = field(default=0, init=False)
    _steps: int = field(default=0, init=False)
    _untimed_evaluation: Evaluation | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        training, workload = self.training, self.course.evaluator.workload
        if reason := Target.refusal(training, workload.section.name, type(workload)):
            raise UsageProblem(reason)
        self._target = Target(accuracy=training.target_accuracy, loss=training.target_loss)
        batches = self.course.evaluator.data.steps_per_epoch
        batches_per_step = self.training.accumulation_steps
        self._steps_per_epoch = (batches or 0) / batches_per_step
        self._evaluate_every = self.training.evaluate_every or ceil(
            (batches or 1) / batches_per_step
        )

    def restart(self) -> None:
        """Restore the initial state: untimed setup of :meth:`step`."""
        self.course.restart()

    def step(self) -> None:
        """Train from the start to the target (hot path)."""
        self.course.train(self._steps)
        self.calls += 1

    def short_step(self) -> None:
        """Run two optimizer steps; the second one has optimizer state."""
        self.course.train(2)

    def prepare(self, log: Log) -> Check:
        """Train to the target, untimed, and compare the precision with fp32.

        Raises:
            CorrectnessError: the target is not reached within ``training.max_steps``, the loss is
                not finite, or it is further from that in fp32 than ``training.parity_band``.
        """
        milestones: list[Milestone] = []
        losses, first_step_s = self._train_to_target(log, milestones)
        final = milestones[-1]
        self._steps, self._untimed_evaluation = final.step, final.evaluation
        log(PhaseEvent(phase="check").line())
        parity = self._parity(final.evaluation)
        log(ConvergenceEvent(target=self._target.text, step=final.step, **parity).line())
        epochs = {}
        if self._steps_per_epoch:
            epochs = {"epochs_to_target": self._steps / self._steps_per_epoch}
        return Check(
            correctness={
                "target": self._target.text,
                "losses": losses,
                "evaluations": [milestone.point for milestone in milestones],
                **parity,
                "parity_band": self.training.parity_band,
            },
            facts={
                "first_step_s": first_step_s,
                "steps_to_target": float(self._steps),
                **epochs,
                **{name: value for name, value in parity.items() if name == "parity_error"},
            },
        )

    def begin(self) -> None:
        """Forget what the untimed trainings counted."""
        self.course.reset_counts()

    def finish(self) -> Mapping[str, float]:
        """Counts, and the evaluation after the last timed training.

        Raises:
            CorrectnessError: it failed its checks, or its loss differs from the untimed one's.
        """
        evaluation = self.course.evaluator.evaluate()
        counts = self.course.counts()
        if self._untimed_evaluation is not None:
            labels = "the timed training", "the untimed training"
            self._compare(evaluation, self._untimed_evaluation, *labels)
        return {**counts, **evaluation.metrics}

    def work(self) -> Work:
        """Samples and tokens of one training on this rank."""
        tokens = self.course.evaluator.workload.tokens(self._samples)
        return Work(samples=self._samples, tokens=tokens)

    def flops_step(self) -> None:
        """Forward and backward passes of one training as one huge fake batch."""
        run_fake_step(self.course.evaluator.workload, samples=self._samples, backward=True)

    @property
    def _samples(self) -> int:
        return self._steps * self.training.samples * self.training.accumulation_steps

    def _train_to_target(self, log: Log, milestones: list[Milestone]) -> tuple[list[float], float]:
        """Train and evaluate alternately, filling `milestones`.

        Returns the losses, and the duration without evaluations and logging.
        """
        self.course.restart()
        max_steps = self.training.max_steps
        log(PhaseEvent(phase="train", steps=max_steps).line())
        step, best, training_s = 0, None, 0.0
        with self.course.trainer.recording(log, epochs=True) as training_log:
            while step < max_steps:
                steps_until_evaluation = min(self._evaluate_every, max_steps - step)
                training_s += self._train_and_record(steps_until_evaluation, training_log)
                step += steps_until_evaluation
                with training_log.clock.paused():
                    evaluation = self.course.evaluator.evaluate()
                    is_best = best is None or self._target.is_better(evaluation, best.evaluation)
                    milestone = Milestone(
                        step=step,
                        evaluation=evaluation,
                        is_best=is_best,
                        trainer=self.course.trainer,
                    )
                    best = milestone if is_best else best
                    milestones.append(milestone)
                    log(EvaluationEvent(**milestone.point).line())
                    training_log.write(evaluation)
                    for observer in self.observers:
                        observer(milestone)
                if self._target.is_reached(evaluation):
                    return training_log.close(), training_s
        assert best is not None  # there is at least one step
        raise CorrectnessError(
            f"{self._target.text} was not reached within training.max_steps={max_steps}: the best "
            f"value was {self._target.value(best.evaluation):.4g} at step {best.step}"
        )

    def _train_and_record(self, steps: int, training_log: TrainingLog) -> float:
        """Train some steps; return their duration, without logging.

        An epoch that the last one completes is written with the evaluation that follows.
        """
        training_s = 0.0
        trainer = self.course.trainer
        for remaining in reversed(range(steps)):
            training_s += timed_s(trainer.step, trainer.device)
            if training_log.end_step(trainer.last_loss) and remaining:
                training_log.write()
        return training_s

    def _parity(self, actual: Evaluation) -> dict[str, float]:
        """Relative loss error against fp32, with its loss and accuracy."""
        if self.reference is None:
            return {}
        with self.reference() as fp32_course:
            fp32_course.restart()
            fp32_course.train(self._steps)
            expected = fp32_course.evaluator.evaluate()
        error = self._compare(actual, expected, "this precision", "fp32")
        in_fp32 = {f"{name}_fp32": value for name, value in expected.metrics.items()}
        return {"parity_error": error, **in_fp32}

    def _compare(
        self, actual: Evaluation, expected: Evaluation, label: str, expected_label: str
    ) -> float:
        """Relative error of the loss `actual`; raises outside the band."""
        error = abs(actual.loss - expected.loss) / (abs(expected.loss) or 1.0)
        if not error <= self.training.parity_band:
            raise CorrectnessError(
                f"training.parity_band={self.training.parity_band}: after {self._steps} steps the "
                f"loss on held-out samples is {actual.loss:.4g} in {label}, {expected.loss:.4g} in "
                f"{expected_label}: a relative error of {error:.3g}"
            )
        return error
