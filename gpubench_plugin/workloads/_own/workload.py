"""The workload of a model, a batch and a loss that a test states."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, Final, Self

import torch
from torch import Tensor, nn

from gpubench_plugin.config.sections import ModelSection
from gpubench_plugin.core.errors import Misuse, Unsupported, error_text, require_returned
from gpubench_plugin.precision._nested import tensors_in
from gpubench_plugin.workloads._own.batch import StatedBatch, described
from gpubench_plugin.workloads._own.loss import StatedLoss, loss_in
from gpubench_plugin.workloads._own.model import StatedModel
from gpubench_plugin.workloads.base import Batch, Workload

OptimizerOf = Callable[[list[nn.Parameter]], torch.optim.Optimizer]

_MISMATCHES: Final = frozenset({AttributeError, IndexError, KeyError, TypeError, ValueError})
_CONVOLUTIONS: Final = nn.modules.conv._ConvNd


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
        has_convolutions = any(isinstance(layer, _CONVOLUTIONS) for layer in module.modules())
        if self.section.channels_last and not has_convolutions:
            raise Unsupported(f"model.channels_last: {self.section.name} has no convolutions")
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
        if not parameters:
            raise Misuse(
                f"model {self.section.name} has no trainable parameters; gpubench.infer measures "
                "its forward pass alone"
            )
        return None if self._own_optimizer is None else _built(self._own_optimizer, parameters)

    def forward(self, module: nn.Module, batch: Batch) -> Any:
        """The model's output for the batch's inputs."""
        return self._run("model", _called, (module, batch.inputs), batch, shown=batch.inputs)

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        """The loss as the test states it."""
        loss = self._loss
        if loss.is_own:
            return loss_in(self.forward(module, batch))
        if loss.takes_model:
            arguments: tuple[Any, ...] = (module, batch.inputs)
            shown: Any = batch.inputs
        else:
            output = self.forward(module, batch)
            targets = self._batch.targets_of(batch)
            arguments = shown = (output, *targets)
        function = loss.fake() if self._is_fake else loss.for_weights(_dtype_of(module))
        value: Tensor = self._run("loss", function, arguments, batch, shown=shown)
        return value

    def _run(
        self,
        role: str,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        batch: Batch,
        *,
        shown: Any,
    ) -> Any:
        """Call `function`; an error of the first call tells the types and shapes of `shown`.

        Raises:
            Misuse: the call fails as one with wrong arguments does, or changes the `batch`, which
                the next call gets as well; or the model's output has not as many samples.
        """
        if torch.compiler.is_compiling() or role in self._working:
            return function(*arguments)
        versions = _versions(batch)
        try:
            result = function(*arguments)
        except Exception as error:
            is_mismatch = type(error) is RuntimeError or type(error) in _MISMATCHES
            text = error_text(error).partition("\n")[0]
            if not is_mismatch or text.startswith(("CUDA", "HIP", "NCCL", "cu", "MPS")):
                raise
            advice = self._advice(error) if role == "model" else ""
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

    def _advice(self, error: Exception) -> str:
        """Advice for a batch that does not match the model's arguments."""
        if not isinstance(error, TypeError) or "argument" not in error_text(error):
            return ""
        if isinstance(self._batch.inputs, dict):
            return (
                "; a dictionary has the model's keyword arguments: leave out of it what is none, "
                "or pass (inputs, targets), or a loss of (model, batch)"
            )
        if self._loss.is_own and isinstance(self._batch.inputs, tuple):
            return (
                "; gpubench.infer, and gpubench.train without a loss, call the model with all of "
                "the batch: pass its inputs alone, as batch[0]"
            )
        return ""

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
    if closure is not None and closure.default is closure.empty:
        raise Misuse(
            f"optimizer {name} evaluates the loss itself, by a closure; "
            "allowed: one whose step needs none"
        )
    own_ids = set(map(id, parameters))
    updated_ids = {id(p) for group in optimizer.param_groups for p in group["params"]}
    if updated_ids - own_ids:
        raise Misuse(
            "optimizer updates weights of another model; build it of the parameters passed: "
            "optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-3)"
        )
    if len(updated_ids) < len(own_ids):
        raise Misuse(
            f"optimizer {name} updates {len(updated_ids)} of {len(own_ids)} trainable parameters, "
            "so that the gradients of the others would add up; freeze those by "
            "requires_grad_(False)"
        )
    if "lr" not in optimizer.param_groups[0]:
        raise Misuse(
            f"optimizer {name} has no learning rate; allowed: one with lr in its param_groups"
        )
    return optimizer
