"""The workload of a model, a batch and a loss that a test states.

The loss is one of output and targets, of model and batch, or the model's own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from copy import copy, deepcopy
from functools import partial
from typing import Any, Final, Self

import torch
from torch import Tensor, nn

from gpubench_plugin.config.sections import ModelSection
from gpubench_plugin.core.errors import Misuse, error_text, require_returned
from gpubench_plugin.precision._nested import tensors_in
from gpubench_plugin.workloads._own.batch import StatedBatch, described
from gpubench_plugin.workloads._own.model import StatedModel, fake_copy
from gpubench_plugin.workloads.base import Batch, Workload

OptimizerOf = Callable[[list[nn.Parameter]], torch.optim.Optimizer]

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
        self._converted = loss
        if isinstance(loss, nn.Module) and weights != torch.float32:
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
        function = self._converted if dtype == self._weights else self._function
        assert function is not None
        return function

    def fake(self) -> Callable[..., Any]:
        """The function with tensors without data, in a ``FakeTensorMode``."""
        function = self._function
        assert function is not None
        return fake_copy(function) if isinstance(function, nn.Module) else function


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


def _first_parameter(function: Any) -> str | None:
    """Name of the first parameter; None where it is not known, as of built-in functions."""
    try:
        return next(iter(inspect.signature(function).parameters), None)
    except (TypeError, ValueError):  # of None, too
        return None


_MISMATCHES: Final = frozenset({AttributeError, IndexError, KeyError, TypeError, ValueError})
_ADVICE: Final = (
    "; a dictionary has the model's keyword arguments: leave out of it what is none; a tuple has "
    "all arguments for gpubench.infer, and for gpubench.train without a loss: pass the inputs "
    "alone, as batch[0]"
)
"""For a batch that does not match the model's arguments."""


class OwnWorkload(Workload[ModelSection]):
    """Copies of a model on one fixed batch, with its `loss` and perhaps its `own_optimizer`."""

    convolutional = True  # for all that is known before it is built

    def __init__(
        self,
        section: ModelSection,
        *,
        model: StatedModel,
        batch: StatedBatch,
        loss: StatedLoss,
        own_optimizer: OptimizerOf | None = None,
    ):
        super().__init__(section.model_copy(update={"name": model.name}))
        self._model = model
        self._batch = batch
        self._loss = loss
        self._own_optimizer = own_optimizer
        self._is_fake = False
        self._working: set[str] = set()

    def build(self) -> nn.Module:
        """A copy of the model."""
        if self._is_fake:
            return self._model.build_fake()
        module = self._model.build()
        self._require_convolutions(module)
        return module

    def for_fake_tensors(self) -> Self:
        """The same computation on tensors without data."""
        clone = copy(super().for_fake_tensors())
        clone._is_fake = True
        return clone

    def synthetic_batch(
        self, size: int, *, device: torch.device, generator: torch.Generator | None = None
    ) -> Batch:
        """The batch, of which `size` is the number of samples."""
        return self._batch.fake() if self._is_fake else self._batch.on(device, self.memory_format)

    def optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer | None:
        """The optimizer that the test states, if any.

        Raises:
            Misuse: it is no optimizer, one of other or of some weights only, needs a closure or
                has no learning rate; or there is nothing to train.
        """
        own = super().optimizer(parameters)
        return own if self._own_optimizer is None else _built(self._own_optimizer, parameters)

    def forward(self, module: nn.Module, batch: Batch) -> Any:
        """The model's output for the batch's inputs."""
        call = partial(_called, module, batch.inputs)
        return self._run("model", call, batch, shown=batch.inputs)

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        """The loss as the test states it."""
        loss = self._loss
        if loss.is_own:
            return loss_in(self.forward(module, batch))
        function = loss.fake() if self._is_fake else loss.for_weights(_dtype_of(module))
        shown: Any = batch.inputs
        if loss.takes_model:
            call = partial(function, module, shown)
        else:
            shown = (self.forward(module, batch), *self._batch.targets_of(batch))
            call = partial(function, *shown)
        value: Tensor = self._run("loss", call, batch, shown=shown)
        return value

    def _run(self, role: str, call: Callable[[], Any], batch: Batch, *, shown: Any) -> Any:
        """Result of `call`; an error of the first call tells the types and shapes of `shown`.

        Raises:
            Misuse: the call fails as one with wrong arguments does, or changes the `batch`, which
                the next call gets as well; or the model's output has not as many samples.
        """
        if torch.compiler.is_compiling() or role in self._working:
            return call()
        versions = _versions(batch)
        try:
            result = call()
        except Exception as error:
            is_mismatch = type(error) is RuntimeError or type(error) in _MISMATCHES
            text = error_text(error).partition("\n")[0]
            if not is_mismatch or text.startswith(("CUDA", "HIP", "NCCL", "cu", "MPS")):
                raise
            is_argument = role == "model" and isinstance(error, TypeError) and "argument" in text
            advice = _ADVICE if is_argument else ""
            raise Misuse(
                f"{role} {self._name_of(role)}{_as_arguments(shown)}: {type(error).__name__}: "
                f"{text}{advice}"
            ) from error
        if _versions(batch) != versions:
            raise Misuse(
                f"{role} {self._name_of(role)} changes the batch in place, which every call gets "
                "as the one before has left it; let it compute new tensors, without inplace=True"
            )
        if role == "model":
            self._require_samples(result)
        self._working.add(role)
        return result

    def _name_of(self, role: str) -> str:
        return self._loss.name if role == "loss" else self._model.name

    def _require_samples(self, output: Any) -> None:
        """Refuse an `output` in which nothing is as long as the batch, whose samples are a guess.

        So is one sample without a batch, or a sequence with time first.
        """
        shapes = [tensor.shape for tensor in tensors_in(output) if tensor.ndim]
        samples = self._batch.samples
        if self._batch.is_stated or not shapes or any(samples in shape for shape in shapes):
            return
        raise Misuse(
            f"batch: by its first dimension it has {samples} samples, but no dimension of the "
            f"model's output is as long: {described(output)}; state the number, samples="
        )


def _dtype_of(module: nn.Module) -> torch.dtype:
    """Type of the weights."""
    return next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)


def _versions(batch: Batch) -> list[int]:
    """Counts of the changes in place to the tensors of `batch`."""
    return [tensor._version for tensor in tensors_in(batch) if not tensor.is_inference()]


def _called(module: nn.Module, inputs: Any) -> Any:
    if isinstance(inputs, dict):
        return module(**inputs)
    if isinstance(inputs, tuple):
        return module(*inputs)
    return module(inputs)


def _as_arguments(values: Any) -> str:
    if isinstance(values, Mapping):
        return f"({', '.join(f'{key}={described(value)}' for key, value in values.items())})"
    return described(values if isinstance(values, tuple) else (values,))


def _built(own_optimizer: OptimizerOf, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    optimizer = require_returned(own_optimizer(parameters), torch.optim.Optimizer, "optimizer")
    name = type(optimizer).__name__
    closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    needs_closure = closure is not None and closure.default is closure.empty
    if needs_closure or "lr" not in optimizer.param_groups[0]:
        raise Misuse(
            f"optimizer {name} evaluates the loss itself, by a closure, or has no learning rate; "
            "allowed: one with lr in its param_groups whose step needs no closure"
        )
    updated_ids = {id(p) for group in optimizer.param_groups for p in group["params"]}
    if updated_ids != set(map(id, parameters)):
        raise Misuse(
            f"optimizer {name} updates {len(updated_ids)} parameters, which are not the "
            f"{len(parameters)} trainable ones of the copy that is trained; freeze others by "
            "requires_grad_(False), and build it of the parameters passed: "
            "optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-3)"
        )
    return optimizer
