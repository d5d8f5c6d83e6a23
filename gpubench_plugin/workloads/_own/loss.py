"""A loss as a test states it: of output and targets, of model and batch, or the model's own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, Final

import torch
from torch import Tensor, float32, nn

from gpubench_plugin.core.errors import Misuse
from gpubench_plugin.workloads._own.batch import described
from gpubench_plugin.workloads._own.model import fake_copy

_MODEL_NAMES: Final = frozenset({"model", "module"})
"""First parameters of a function that calls the model itself."""


class StatedLoss:
    """The loss of a batch; `takes_model` where it calls the model itself, `is_own` without one.

    Otherwise it is called with the model's output and the targets; with a dictionary as batch,
    with the output and that.

    Raises:
        Misuse: `loss` cannot be called, or has weights that nothing would train.
    """

    def __init__(
        self, loss: Callable[..., Any] | None, *, device: torch.device, weights: torch.dtype
    ):
        if loss is not None and not callable(loss):
            raise Misuse(
                f"loss is of type {type(loss).__name__}; allowed: a function of (output, targets), "
                "as torch.nn.functional.cross_entropy, one of (model, batch), or None where the "
                "model's output has its loss"
            )
        if isinstance(loss, nn.Module):
            if any(parameter.requires_grad for parameter in loss.parameters()):
                raise Misuse(
                    f"loss ({type(loss).__name__}) has trainable weights, which only a model's are "
                    "trained; make it a part of the model"
                )
            loss = deepcopy(loss).to(device)
        self._function = loss
        self._converted: Callable[..., Any] | None = None
        if isinstance(loss, nn.Module) and weights != float32:
            self._converted = deepcopy(loss).to(weights)
        self._weights = weights
        self.is_own = loss is None
        self.takes_model = _first_parameter(loss) in _MODEL_NAMES
        self.has_targets = not (self.is_own or self.takes_model)
        """Whether a tuple as batch is inputs and targets; else all of it is the model's."""

    @property
    def name(self) -> str:
        """Name of the function; of None "the model's own"."""
        if self._function is None:
            return "the model's own"
        return str(getattr(self._function, "__name__", type(self._function).__name__))

    def for_weights(self, dtype: torch.dtype) -> Callable[..., Any]:
        """The function for a model with weights of that type, which its own tensors have, too."""
        assert self._function is not None
        if self._converted is not None and dtype == self._weights:
            return self._converted
        return self._function

    def fake(self) -> Callable[..., Any]:
        """The function with tensors without data, in a ``FakeTensorMode``."""
        assert self._function is not None
        if isinstance(self._function, nn.Module):
            return fake_copy(self._function)
        return self._function


def loss_in(output: object) -> Tensor:
    """The loss that an `output` is or has: a scalar, or ``loss`` among its values.

    Raises:
        Misuse: there is none.
    """
    loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", output)
    if not isinstance(loss, Tensor) or loss.ndim:
        raise Misuse(
            f"loss=None, but the model's output {described(output)} has no loss, as one with "
            "labels in its batch has in transformers; pass a loss"
        )
    return loss


def _first_parameter(function: Callable[..., Any] | None) -> str | None:
    """Name of the first parameter; None where it is not known, as of built-in functions."""
    if function is None:
        return None
    try:
        return next(iter(inspect.signature(function).parameters), None)
    except (TypeError, ValueError):
        return None
