"""From a loss to updated weights: loss scaling, clipping, optimizer, schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.tensor import DTensor
from torch.nn.utils import clip_grad_norm_

from gpubench_plugin import catalog

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor, nn
    from torch.amp import GradScaler
    from torch.optim import Optimizer

    from gpubench_plugin.configuration.schema import TrainingSection


class Optimization:
    """The part of a training step that is the same for every model.

    Where gradients overflow, the `scaler` leaves an update out; the schedule waits for the
    updates that happen, as far as the host knows of them.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        *,
        training: TrainingSection,
        device: torch.device,
        scaler: GradScaler | None,
    ):
        self._parameters = [p for p in parameters if p.requires_grad]
        builder = catalog.load("optimizers", training.optimizer)(
            training, device, sharded=any(isinstance(p, DTensor) for p in self._parameters)
        )
        self._optimizer: Optimizer = builder.build(self._parameters)
        schedule = catalog.load("schedulers", training.scheduler)(training.schedule_steps)
        self._scheduler = schedule.build(self._optimizer)
        self._clipping = training.gradient_clipping
        self.scaler = scaler
        self._updates = None if scaler is None else ScaledUpdates(self._optimizer, device)
        self._steps = 0

    @property
    def learning_rate(self) -> float:
        """The rate of the next update."""
        return float(self._optimizer.param_groups[0]["lr"])

    @property
    def steps(self) -> int:
        """Calls of :meth:`update` since the last :meth:`reset`."""
        return self._steps

    def backward(self, loss: Tensor) -> None:
        """Add the gradients of `loss`, scaled where the precision needs it."""
        if self.scaler is not None:
            loss = self.scaler.scale(loss)
        loss.backward()

    def update(self) -> None:
        """Use up the gradients."""
        optimizer, scaler = self._optimizer, self.scaler
        if self._clipping is not None:
            if scaler is not None:
                scaler.unscale_(optimizer)
            clip_grad_norm_(self._parameters, self._clipping)
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
        optimizer.zero_grad(set_to_none=True)
        if self._scheduler is not None and (self._updates is None or self._updates.called_last()):
            self._scheduler.step()
        self._steps += 1

    def reset(self) -> None:
        """Count steps and skipped steps from zero."""
        self._steps = 0
        if self._updates is not None:
            self._updates.reset()

    def skipped_steps(self) -> int:
        """Steps since :meth:`reset` that left the weights alone; waits for the device."""
        return 0 if self._updates is None else self._steps - self._updates.applied()


class ScaledUpdates:
    """Counts the updates that a GradScaler lets through, without waiting for the device.

    There are two kinds of optimizer. An ordinary one is not called when gradients are not finite:
    its calls are the updates. A fused one is always called and finds in its attribute
    ``found_inf``, a tensor on the device, whether to leave the weights alone: those are summed on
    the device. See ``torch.amp.GradScaler.step``.
    """

    def __init__(self, optimizer: Optimizer, device: torch.device):
        self._calls = 0
        self._calls_before = 0
        self._left_out = torch.zeros((), device=device)
        optimizer.register_step_post_hook(self._after_call)

    def _after_call(self, optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        self._calls += 1
        found_inf = getattr(optimizer, "found_inf", None)
        if found_inf is not None:
            self._left_out.add_(found_inf)

    def reset(self) -> None:
        """Count from zero."""
        self._calls = 0
        self._calls_before = 0
        self._left_out.zero_()

    def called_last(self) -> bool:
        """Whether the optimizer was called since this was asked before."""
        called = self._calls > self._calls_before
        self._calls_before = self._calls
        return called

    def applied(self) -> int:
        """Updates since :meth:`reset`; waits for the device."""
        return self._calls - int(self._left_out)
