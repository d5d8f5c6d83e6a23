"""What the first steps of a training did, taken down while it trains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn

    from gpubench_plugin.training.check import LossFunction
    from gpubench_plugin.training.optimization import Optimization
    from gpubench_plugin.workloads.base import Batch


@dataclass(frozen=True, kw_only=True)
class WatchedStep:
    """One optimizer step of this rank.

    `batches` are those it accumulated, `loss` is their mean loss, `gradient_norm` the global norm
    before clipping, without the scale of a GradScaler. A step was `skipped` where the GradScaler
    left the weights alone; its norm is not finite.
    """

    batches: tuple[Batch, ...]
    loss: float
    gradient_norm: float
    skipped: bool


class Watch:
    """Takes down the first `count` steps that `optimization` ends; afterwards it does nothing.

    Reading a loss and a norm waits for the device.
    """

    def __init__(self, count: int, optimization: Optimization):
        self.steps: list[WatchedStep] = []
        self._count = count
        self._optimization = optimization
        self._batches: list[Batch] = []
        self._losses: list[Tensor] = []
        self._norm = 0.0
        self._skipped = 0

    def batches(self, source: Iterator[Batch]) -> Iterator[Batch]:
        """The batches of `source`, remembered while it watches."""
        for batch in source:
            if self._watching:
                self._batches.append(batch)
            yield batch

    def losses(self, loss_of: LossFunction) -> LossFunction:
        """`loss_of`, each loss remembered while it watches."""

        def watched(module: nn.Module, batch: Batch) -> Tensor:
            loss = loss_of(module, batch)
            if self._watching:
                self._losses.append(loss.detach())
            return loss

        return watched

    def before_update(self) -> None:
        """The gradients are complete, and not clipped yet."""
        if self._watching:
            self._norm = self._optimization.gradient_norm()

    def after_update(self) -> None:
        """The step is over."""
        if not self._watching:
            return
        skipped = self._optimization.skipped_steps()
        step = WatchedStep(
            batches=tuple(self._batches),
            loss=sum(map(float, self._losses)) / len(self._losses),
            gradient_norm=self._norm,
            skipped=skipped > self._skipped,
        )
        self.steps.append(step)
        self._batches.clear()
        self._losses.clear()
        self._skipped = skipped

    @property
    def _watching(self) -> bool:
        return len(self.steps) < self._count
