"""A training that can be begun anew as often as wanted."""

from __future__ import annotations

from collections import Counter
from itertools import repeat
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch import Tensor, nn

    from gpubench_plugin.training.data import DataSource
    from gpubench_plugin.training.evaluation import Evaluation, Evaluator
    from gpubench_plugin.training.trainer import Trainer


class Course:
    """The same training every time: weights, order of batches and random numbers start alike.

    `build_trainer` makes a trainer of `module` on `data`, with an optimizer that has seen nothing;
    the weights to start from are those that `module` has now.
    """

    def __init__(
        self,
        *,
        module: nn.Module,
        data: DataSource,
        evaluator: Evaluator,
        build_trainer: Callable[[], Trainer],
        seed: int,
    ):
        self._module = module
        self._data = data
        self._evaluator = evaluator
        self._build_trainer = build_trainer
        self._seed = seed
        self._initial = {
            name: value.detach().clone() if isinstance(value, torch.Tensor) else value
            for name, value in module.state_dict().items()
        }
        self._trainer: Trainer | None = None
        self._counted: Counter[str] = Counter()

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
        self._module.load_state_dict(self._initial)
        self._data.restart()
        torch.manual_seed(self._seed)
        self._trainer = self._build_trainer()
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
        return self._evaluator.evaluate()

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
