"""Optimization: loss scaling, clipping, optimizer step, schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.utils import clip_grad_norm_

from gpubench_plugin.config.sections import TrainingSection
from gpubench_plugin.core import catalog
from gpubench_plugin.core.errors import require_returned
from gpubench_plugin.training.parallelism.base import gradient_norm

GlobalNorm = Callable[[Iterable[nn.Parameter]], float]
OptimizerOf = Callable[[list[nn.Parameter]], torch.optim.Optimizer | None]


class Optimization:
    """The model-independent part of a training step.

    The `scaler` skips updates with overflowing gradients; the schedule skips them, too, unless the
    optimizer is fused. `global_norm` is the gradient norm of parameters spread over ranks.
    `own_optimizer` builds the workload's optimizer, if it has one.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        *,
        training: TrainingSection,
        device: torch.device,
        scaler: torch.amp.GradScaler | None,
        global_norm: GlobalNorm | None = None,
        own_optimizer: OptimizerOf | None = None,
    ):
        self._parameters = [p for p in parameters if p.requires_grad]
        own = None if own_optimizer is None else own_optimizer(self._parameters)
        if own is None:
            sharded = any(isinstance(p, DTensor) for p in self._parameters)
            builder = catalog.load("optimizers", training.optimizer, key="training.optimizer")
            own = builder(training, device, sharded=sharded).build(self._parameters)
        self.optimizer = require_returned(own, torch.optim.Optimizer, "optimizer")
        schedule = catalog.load("schedulers", training.scheduler, key="training.scheduler")
        self._scheduler = schedule.build(self.optimizer, training.schedule_length)
        self._device = device
        self._clipping = training.gradient_clipping
        self.scaler = scaler
        self._global_norm = global_norm or gradient_norm
        self._updates = None if scaler is None else AppliedUpdateCounter(self.optimizer, device)
        self._norm: Tensor | None = None
        self.steps = 0
        """Calls of :meth:`update` since the last :meth:`reset`."""
        self._steps_at_load = 0

    @property
    def learning_rate(self) -> float:
        """Learning rate of the next update."""
        return float(self.optimizer.param_groups[0]["lr"])

    @property
    def total_steps(self) -> int:
        """Calls of :meth:`update` in total, including those before a checkpoint."""
        return self._steps_at_load + self.steps

    def backward(self, loss: Tensor) -> None:
        """Accumulate the gradients of `loss`, scaled if the precision requires it."""
        if self.scaler is not None:
            loss = self.scaler.scale(loss)
        loss.backward()

    def update(self) -> None:
        """Apply and clear the gradients."""
        optimizer, scaler = self.optimizer, self.scaler
        if self._clipping is not None:
            if scaler is not None:
                scaler.unscale_(optimizer)
            self._norm = clip_grad_norm_(self._parameters, self._clipping)
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
        optimizer.zero_grad(set_to_none=True)
        if self._scheduler is not None and (self._updates is None or self._updates.was_called()):
            self._scheduler.step()
        self.steps += 1

    def gradient_norm(self, parameters: Iterable[nn.Parameter] | None = None) -> float:
        """2-norm of the gradients of `parameters` (None: all) without the loss scale.

        Synchronizes. Every rank must call it, before :meth:`update`.
        """
        scale = 1.0 if self.scaler is None else self.scaler.get_scale()
        return self._global_norm(self._parameters if parameters is None else parameters) / scale

    def progress(self) -> dict[str, float | Tensor]:
        """What trainers log of a step; tensors are on the device, and nothing is read from it.

        ``gradient_norm`` before clipping where gradients are clipped, ``loss_scale`` with a scaler.
        Every rank must call it.
        """
        norm, scaler, updates = self._norm, self.scaler, self._updates
        progress: dict[str, float | Tensor] = {
            "learning_rate": self.learning_rate,
            "skipped_steps": 0 if updates is None else updates.skipped(self.steps),
        }
        if norm is not None:
            progress["gradient_norm"] = norm.full_tensor() if isinstance(norm, DTensor) else norm
        if scaler is not None:
            progress["loss_scale"] = scaler.scale(torch.ones((), device=self._device))
        return progress

    def state_dict(self) -> dict[str, Any]:
        """State of optimizer, schedule and scaler; None for missing ones."""
        scheduler, scaler = self._scheduler, self.scaler
        return {
            "optimizer": self.optimizer.state_dict(),
            "scheduler": None if scheduler is None else scheduler.state_dict(),
            "scaler": None if scaler is None else scaler.state_dict(),
            "steps": self.total_steps,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state of :meth:`state_dict`."""
        self.optimizer.load_state_dict(state["optimizer"])
        if self._scheduler is not None:
            self._scheduler.load_state_dict(state["scheduler"])
        if self.scaler is not None:
            self.scaler.load_state_dict(state["scaler"])
        self._steps_at_load = state["steps"] - self.steps

    def reset(self) -> None:
        """Reset the counts of steps and skipped steps."""
        self._steps_at_load += self.steps
        self.steps = 0
        if self._updates is not None:
            self._updates.reset()

    def skipped_steps(self) -> int:
        """Steps since :meth:`reset` that were skipped; synchronizes."""
        return 0 if self._updates is None else int(self._updates.skipped(self.steps))


class AppliedUpdateCounter:
    """Counts updates applied by a GradScaler without synchronizing.

    An ordinary optimizer is called only for finite gradients. A fused one is always called and
    skips the update if its attribute ``found_inf``, a tensor on the device, is set; those are
    summed on the device. See ``torch.amp.GradScaler.step``.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, device: torch.device):
        self._calls = 0
        self._calls_before = 0
        self._skipped = torch.zeros((), device=device)
        optimizer.register_step_post_hook(self._after_call)

    def _after_call(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        self._calls += 1
        found_inf = getattr(optimizer, "found_inf", None)
        if found_inf is not None:
            self._skipped.add_(found_inf)

    def reset(self) -> None:
        """Forget the updates counted so far."""
        self._calls = 0
        self._calls_before = 0
        self._skipped.zero_()

    def was_called(self) -> bool:
        """Whether the optimizer was called since the last query."""
        was_called = self._calls > self._calls_before
        self._calls_before = self._calls
        return was_called

    def skipped(self, steps: int) -> Tensor:
        """Number of skipped steps among the last `steps`, as a device tensor."""
        return (self._skipped + (steps - self._calls)).long()
