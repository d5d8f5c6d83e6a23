"""Training to a target on real data, as a thing to measure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import repeat
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch

from gpubench_plugin.environment import synchronize
from gpubench_plugin.errors import CorrectnessError, UsageProblem
from gpubench_plugin.records import Check, Work
from gpubench_plugin.training.check import LossHistory
from gpubench_plugin.training.model import run_once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from torch import Tensor, nn

    from gpubench_plugin.config import TrainingSection
    from gpubench_plugin.distributed import RankAgreement
    from gpubench_plugin.measure import Log
    from gpubench_plugin.training.data import DataSource
    from gpubench_plugin.training.evaluation import Evaluation, Evaluator
    from gpubench_plugin.training.trainer import Trainer
    from gpubench_plugin.workloads import Workload


@dataclass(frozen=True, kw_only=True)
class Milestone:
    """An evaluation on the way to the target, and whether none before was better."""

    step: int
    evaluation: Evaluation
    is_best: bool
    trainer: Trainer

    @property
    def point(self) -> dict[str, object]:
        """A point of the curve, in the journal and in the record."""
        return {"step": self.step, "is_best": self.is_best, **self.evaluation.metrics}


@dataclass(frozen=True, kw_only=True)
class Target:
    """What the held-out samples must reach: an accuracy, or a loss."""

    accuracy: float | None
    loss: float | None

    @classmethod
    def of(cls, training: TrainingSection, workload: Workload[Any]) -> Target:
        """The target in the section ``training``.

        Raises:
            UsageProblem: there is none or two, or an accuracy is asked of what does not classify.
        """
        made = cls(accuracy=training.target_accuracy, loss=training.target_loss)
        if (made.accuracy is None) == (made.loss is None):
            raise UsageProblem(
                f"training.target_accuracy={made.accuracy} and training.target_loss={made.loss}; "
                "allowed: one of them, the other null"
            )
        if made.accuracy is not None and not workload.classifies:
            raise UsageProblem(
                f"training.target_accuracy={made.accuracy}: {workload.section.name} does not "
                "classify; allowed: training.target_loss"
            )
        return made

    @property
    def said(self) -> str:
        """As the user wrote it."""
        if self.accuracy is None:
            return f"training.target_loss={self.loss}"
        return f"training.target_accuracy={self.accuracy}"

    def value(self, evaluation: Evaluation) -> float:
        """What the target is about."""
        return evaluation.loss if evaluation.accuracy is None or self.loss else evaluation.accuracy

    def is_better(self, one: Evaluation, other: Evaluation) -> bool:
        """Whether `one` is nearer to the target than `other`, or further beyond it."""
        if self.loss is not None:
            return self.value(one) < self.value(other)
        return self.value(one) > self.value(other)

    def is_reached(self, evaluation: Evaluation) -> bool:
        """Whether it is good enough."""
        if self.loss is not None:
            return self.value(evaluation) <= self.loss
        return self.accuracy is not None and self.value(evaluation) >= self.accuracy


@dataclass(eq=False, kw_only=True)
class Course:
    """The same training every time: weights, order of batches and random numbers start alike.

    `build_trainer` makes a trainer of `module` on `data`, with an optimizer that has seen nothing;
    the weights to start from are those that `module` has now.
    """

    module: nn.Module
    data: DataSource
    evaluator: Evaluator
    build_trainer: Callable[[], Trainer]
    seed: int
    _trainer: Trainer | None = field(default=None, init=False)
    _counted: Counter[str] = field(default_factory=Counter, init=False)

    def __post_init__(self) -> None:
        self._initial = {
            name: value.detach().clone() if isinstance(value, torch.Tensor) else value
            for name, value in self.module.state_dict().items()
        }

    @property
    def trainer(self) -> Trainer:
        """The trainer since the last :meth:`restart`."""
        assert self._trainer is not None, "not begun"
        return self._trainer

    def restart(self) -> None:
        """Go back to the start; what the last training counted is kept.

        Raises:
            CorrectnessError: the last training went wrong.
        """
        self._close()
        self.module.load_state_dict(self._initial)
        self.data.restart()
        torch.manual_seed(self.seed)
        self._trainer = self.build_trainer()
        self._trainer.begin()

    def train(self, steps: int) -> None:
        """Go on for some optimizer steps: the hot path."""
        step = self.trainer.step
        for _ in repeat(None, steps):
            step()

    def losses(self, steps: int) -> Iterator[Tensor]:
        """Go on for some optimizer steps, and hand out the loss of each as it was on this rank."""
        for _ in repeat(None, steps):
            self.trainer.step()
            yield self.trainer.last_loss

    def evaluate(self) -> Evaluation:
        """How good the model is now."""
        return self.evaluator.evaluate()

    def forget(self) -> None:
        """Count from zero, with the next training."""
        self._trainer = None
        self._counted.clear()

    def counted(self) -> Mapping[str, float]:
        """What the trainings since :meth:`forget` counted, summed.

        Raises:
            CorrectnessError: the last one went wrong.
        """
        self._close()
        return dict(self._counted)

    def _close(self) -> None:
        if self._trainer is not None:
            self._counted.update(self._trainer.finish())
            self._trainer = None


class Convergence:
    """Trains to a target; one call of :meth:`step` is one whole training of as many steps as that.

    How many steps it takes is found before the measurement, by a training that is evaluated every
    ``training.evaluate_every`` steps. What is timed is the same training again, from the same
    start to the step at which the target was reached, without evaluations: its duration is the
    time to the target. :meth:`restart` must run before every call, outside the timed part.

    `reference`, None where the precision is fp32 itself, is the same training in fp32: after as
    many steps its loss on the held-out samples must be near.

    `observers` are told of every evaluation on the way to the target, in its order.
    """

    def __init__(
        self,
        *,
        course: Course,
        workload: Workload[Any],
        data: DataSource,
        training: TrainingSection,
        agreement: RankAgreement,
        reference: Callable[[], AbstractContextManager[Course]] | None = None,
    ):
        self._course = course
        self._workload = workload
        self._training = training
        self._agreement = agreement
        self._reference = reference
        self._target = Target.of(training, workload)
        accumulated = training.accumulation_steps
        self._batches_per_epoch = (data.steps_per_epoch or 0) / accumulated
        self._every = training.evaluate_every or -(-(data.steps_per_epoch or 1) // accumulated)
        self._steps = 0
        self._reached: Evaluation | None = None
        self.calls = 0
        self.observers: list[Callable[[Milestone], object]] = []

    def restart(self) -> None:
        """Go back to the start: the untimed setup of :meth:`step`."""
        self._course.restart()

    def step(self) -> None:
        """One training from the start to the target: the hot path."""
        self._course.train(self._steps)
        self.calls += 1

    def brief_step(self) -> None:
        """The first two optimizer steps of a training: the second has the optimizer's state."""
        self._course.train(2)

    def prepare(self, log: Log) -> Check:
        """Train to the target, untimed, and compare the precision with fp32.

        Raises:
            CorrectnessError: the target is not reached within ``training.max_steps``, the loss is
                not finite, or it is further from that in fp32 than ``training.parity_band``.
        """
        milestones: list[Milestone] = []
        losses, first_step_s = self._train_to_target(log, milestones)
        reached = milestones[-1]
        self._steps, self._reached = reached.step, reached.evaluation
        parity = self._parity(reached.evaluation)
        log({"event": "convergence", "target": self._target.said, "step": reached.step, **parity})
        epochs = (
            {"epochs_to_target": self._steps / self._batches_per_epoch}
            if self._batches_per_epoch
            else {}
        )
        return Check(
            correctness={
                "target": self._target.said,
                "losses": losses,
                "evaluations": [milestone.point for milestone in milestones],
                **parity,
                "parity_band": self._training.parity_band,
            },
            facts={
                "first_step_s": first_step_s,
                "steps_to_target": float(self._steps),
                **epochs,
                **{name: value for name, value in parity.items() if name == "parity_error"},
            },
        )

    def begin(self) -> None:
        """Count from zero."""
        self._course.forget()

    def finish(self) -> Mapping[str, float]:
        """What was counted, and how good the last timed training was.

        Raises:
            CorrectnessError: it went wrong, or led elsewhere than the untimed one.
        """
        found = self._course.evaluate()
        counted = self._course.counted()
        if self._reached is not None:
            self._compare(found, self._reached, "the timed training", "the untimed one")
        return {**counted, **found.metrics}

    def work(self) -> Work:
        """Samples and tokens of a whole training on this rank."""
        return Work(samples=self._samples, tokens=self._workload.tokens(self._samples))

    def flops_step(self) -> None:
        """Forward and backward passes of a whole training as one of a huge batch, without data."""
        run_once(self._workload, samples=self._samples, backward=True)

    @property
    def _samples(self) -> int:
        training = self._training
        return self._steps * training.batch_size * training.accumulation_steps

    def _train_to_target(self, log: Log, milestones: list[Milestone]) -> tuple[list[float], float]:
        """Train and evaluate in turn; the losses of training, the milestones in `milestones`.

        It is the first training there is, as a timed call is one: its seconds without those of
        evaluations and of writing losses down are returned, too.
        """
        self._course.restart()
        history = LossHistory(
            log, every=self._training.log_every, state=dict, agreement=self._agreement
        )
        step, best, spent_s = 0, None, 0.0
        while step < self._training.max_steps:
            stretch = min(self._every, self._training.max_steps - step)
            losses = self._course.losses(stretch)
            for _ in range(stretch):
                began = perf_counter()
                loss = next(losses)
                synchronize(loss.device)
                spent_s += perf_counter() - began
                history.add(loss)
            step += stretch
            evaluation = self._course.evaluate()
            is_best = best is None or self._target.is_better(evaluation, best.evaluation)
            milestone = Milestone(
                step=step, evaluation=evaluation, is_best=is_best, trainer=self._course.trainer
            )
            best = milestone if is_best else best
            milestones.append(milestone)
            log({"event": "evaluation", **milestone.point})
            for tell in self.observers:
                tell(milestone)
            if self._target.is_reached(evaluation):
                return history.close(), spent_s
        assert best is not None  # there is at least one step
        raise CorrectnessError(
            f"{self._target.said} was not reached within training.max_steps="
            f"{self._training.max_steps}: the best was {self._target.value(best.evaluation):.4g} "
            f"at step {best.step}"
        )

    def _parity(self, own: Evaluation) -> dict[str, float]:
        """The relative error of the loss, that in fp32, and the accuracy there."""
        if self._reference is None:
            return {}
        with self._reference() as course:
            course.restart()
            course.train(self._steps)
            expected = course.evaluate()
        error = self._compare(own, expected, "this precision", "fp32")
        in_fp32 = {f"{name}_fp32": value for name, value in expected.metrics.items()}
        return {"parity_error": error, **in_fp32}

    def _compare(self, found: Evaluation, expected: Evaluation, what: str, other: str) -> float:
        """The relative error of the loss `found`."""
        error = abs(found.loss - expected.loss) / (abs(expected.loss) or 1.0)
        if not error <= self._training.parity_band:
            raise CorrectnessError(
                f"training.parity_band={self._training.parity_band}: after {self._steps} steps the "
                f"loss on held-out samples is {found.loss:.4g} in {what}, {expected.loss:.4g} in "
                f"{other}: a relative error of {error:.3g}"
            )
        return error
