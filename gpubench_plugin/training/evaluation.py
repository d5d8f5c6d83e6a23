"""Evaluation of a model on held-out samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import fsum, isfinite
from typing import Any

import torch
from torch import Tensor, nn

from gpubench_plugin.core.errors import CorrectnessError, UsageProblem
from gpubench_plugin.core.events import EvaluationEvent
from gpubench_plugin.core.records import Check
from gpubench_plugin.measure.protocols import Log
from gpubench_plugin.precision.base import Precision
from gpubench_plugin.ranks.agreement import RankAgreement
from gpubench_plugin.training.data.base import NOTHING_HELD_OUT, DataSource
from gpubench_plugin.workloads.base import Batch, Workload


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Mean loss and accuracy on held-out samples.

    `accuracy` is None where the model does not classify.
    """

    loss: float
    accuracy: float | None

    @property
    def metrics(self) -> dict[str, float]:
        """Both by metric name, for facts and journal."""
        accuracy = {} if self.accuracy is None else {"test_accuracy": self.accuracy}
        return {"test_loss": self.loss, **accuracy}


@dataclass(frozen=True, eq=False, kw_only=True)
class Evaluator:
    """Evaluates the model in training on the held-out part of `data`.

    Ranks evaluate their shares, and agree on the result.

    Raises:
        UsageProblem: nothing is held out.
    """

    module: nn.Module
    workload: Workload[Any]
    data: DataSource
    precision: Precision
    device: torch.device
    agreement: RankAgreement = field(default_factory=RankAgreement)

    def __post_init__(self) -> None:
        if next(iter(self.data.held_out()), None) is None:
            raise UsageProblem(f"{type(self.data).__name__}: {NOTHING_HELD_OUT}")

    def evaluate(self) -> Evaluation:
        """Current loss and accuracy in eval mode; the previous mode is restored.

        Raises:
            CorrectnessError: the loss is not finite.
        """
        training = self.module.training
        self.module.eval()
        try:
            # Not inference mode: parameters gathered by FSDP2 need version counters.
            with torch.no_grad():
                sums = self._sums(self.data.held_out())
        finally:
            self.module.train(training)
        loss, correct, samples = self.agreement.mean(sums)
        if not isfinite(loss):
            raise CorrectnessError(f"the loss on held-out samples is {loss}")
        accuracy = correct / samples if self.workload.classifies else None
        return Evaluation(loss=loss / samples, accuracy=accuracy)

    def _sums(self, batches: Iterable[Batch]) -> list[float]:
        """Sum of losses, number of correct samples, and number of samples."""
        means, correct, sizes = [], [], []
        for batch in batches:
            with self.precision.forward_context(self.device):
                means.append(self.workload.loss(self.module, batch))
                if self.workload.classifies:
                    classes = self.workload.forward(self.module, batch).argmax(-1)
                    correct.append((classes == batch.targets).sum())
            sizes.append(len(batch.inputs))
        # Summed on the host: some devices have no double precision.
        losses = (mean * size for mean, size in zip(_values(means), sizes, strict=True))
        return [fsum(losses), fsum(_values(correct)), float(sum(sizes))]


def check_evaluation(evaluate: Callable[[], Evaluation], log: Log) -> Check:
    """Evaluate after the untimed training (``training.evaluate``).

    Raises:
        CorrectnessError: the loss is not finite.
    """
    evaluation: dict[str, Any] = evaluate().metrics
    log(EvaluationEvent(**evaluation).line())
    return Check(correctness={"evaluation": evaluation}, facts=evaluation)


def _values(tensors: list[Tensor]) -> list[float]:
    """Values of the tensors with a single device synchronization."""
    return torch.stack(tensors).tolist() if tensors else []
