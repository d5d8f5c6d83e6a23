"""Models by their names: those of a library, or of a project's own code, with inferred inputs."""

from __future__ import annotations

import random
import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from textwrap import shorten
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import torch
from pydantic import Field, ValidationError
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode

from gpubench_plugin.config.model_request import split_name
from gpubench_plugin.config.sections import ModelSection, PositiveInt
from gpubench_plugin.core import catalog
from gpubench_plugin.core.errors import Misuse, UsageProblem, error_text, suggest
from gpubench_plugin.core.format import listed
from gpubench_plugin.precision._nested import tensors_in
from gpubench_plugin.workloads._own.model import fake_copy, require_plain
from gpubench_plugin.workloads._own.workload import loss_in
from gpubench_plugin.workloads.base import Batch, Workload

SHRUNK_SIDE: Final = 64
"""Height and width of the images of a shrunken model, which halve five times in most."""
LAYERS: Final = 2
"""Layers of a shrunken model: of equal ones in a row so many are left."""
SHRUNK_PARAMETERS: Final = 300_000_000
"""More of them are no shrunken model's: a recipe that leaves so many is not tried."""
TOKENS: Final = 128
"""Tokens of a sample, unless stated."""


Built = tuple[nn.Module, Mapping[str, object]]
"""A model, and what of it has been made small."""


class SourceSection(ModelSection):
    """A model by its name; what is not stated of its inputs is inferred."""

    source: str
    """Name of the model in its library, or a folder; of one's own, package.module:Class"""
    init: dict[str, Any] = Field({})
    """Arguments of its constructor, or keys of its configuration"""
    shrink: bool = False
    """Make it tiny: two layers, narrow, a small vocabulary, small images"""
    input_shape: tuple[PositiveInt, ...] = ()
    """Shape of an input without the batch; empty: inferred"""
    sequence_length: PositiveInt | None = None
    """Tokens of a sample; null: 128, or fewer if it has no more positions"""


class Input(NamedTuple):
    """An input of `shape` beside the batch: token or class ids below `below`, or normal numbers."""

    shape: tuple[int, ...]
    below: int | None = None

    def draw(self, samples: int, generator: torch.Generator | None = None) -> Tensor:
        """Random values, on the CPU if a generator of the CPU draws them."""
        shape = (samples, *self.shape)
        if self.below is None:
            return torch.randn(shape, generator=generator)
        return torch.randint(max(self.below, 1), shape, generator=generator)

    def __str__(self) -> str:
        kind = "" if self.below is None else f" below {self.below}"
        return f"{'x'.join(map(str, ('N', *self.shape)))}{kind}"


@dataclass(frozen=True)
class Inputs:
    """Inputs of a model by the names of its parameters, and the `labels` it computes a loss of."""

    arguments: Mapping[str, Input]
    labels: Mapping[str, Input] = field(default_factory=dict)

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.arguments.items())


class SourceWorkload(Workload[SourceSection]):
    """A model by its name, on random inputs.

    The loss is the model's own of random labels where it computes one, else the mean square of its
    outputs' distance from a ramp. Dropout is off, so that the precisions compute the same.
    """

    Section = SourceSection
    convolutional = True  # for all that is known before it is built
    kind: ClassVar[str] = ""
    """What stands before the colon of its name."""

    has_unused: ClassVar[bool] = True
    """Whether what the loss does not reach is frozen; else the trainer refuses it."""

    recipes: ClassVar[Sequence[Any]] = ()
    """Ways to make it small, the smallest first; None leaves it as it is."""

    def __init__(self, section: SourceSection):
        super().__init__(section)
        self._inputs: Inputs | None = None
        self._sizes: Mapping[str, object] = {}
        self._untrained: Sequence[str] | None = None

    @abstractmethod
    def construct(self, recipe: Any) -> Built:
        """The model on torch's default device, made small by a recipe or None, and what is small.

        Raises:
            UsageProblem: there is no such model.
        """

    @abstractmethod
    def infer_inputs(self, module: nn.Module, *, is_small: bool) -> Inputs:
        """Inputs of the built `module`, of which images and the like are small if it `is_small`.

        Raises:
            UsageProblem: they cannot be inferred.
        """

    @property
    def __name__(self) -> str:
        return f"{self.kind}{self.section.source}"

    def __call__(self) -> nn.Module:
        """Build it, as ``gpubench.train`` calls a function that builds a model."""
        return self.build()

    def build(self) -> nn.Module:
        """The model with random weights, without dropout; what gets no gradient is frozen.

        Raises:
            UsageProblem: it cannot be built of ``model.init``, or cannot be shrunk.
        """
        recipe = self._recipe
        try:
            module, self._sizes = self.construct(recipe)
        except Exception as error:  # whatever a library raises on an argument
            if isinstance(error, UsageProblem) or not self.section.init:
                raise
            text = f"{self.__name__}: {reason_of(error)}; see model.init (--init)"
            raise UsageProblem(text) from error
        require_plain(module)
        self._require_convolutions(module)
        for part in module.modules():
            if re.search("Dropout|DropPath|StochasticDepth", type(part).__name__):
                vars(part).update(dict.fromkeys({"p", "drop_prob"} & vars(part).keys(), 0.0))
        if self._inputs is None:
            self._inputs = self.infer_inputs(module, is_small=recipe is not None)
            self._require_stated(self._inputs)
            if ids := self._inputs.arguments.get("input_ids"):
                self.tokens_per_sample = ids.shape[0]
        if self._untrained is None:
            self._untrained = self._without_gradient(module) if self.has_unused else ()
        for name, parameter in module.named_parameters():
            if name in self._untrained:
                parameter.requires_grad_(False)
        return module.train()

    def _require_stated(self, inputs: Inputs) -> None:
        """Refuse a stated shape, or number of tokens, that no input has."""
        shapes = [value.shape for value in inputs.arguments.values()]
        section = self.section
        stated = {"input_shape": section.input_shape, "sequence_length": (section.sequence_length,)}
        for key in section.model_fields_set & stated.keys():
            if any(stated[key]) and stated[key] not in shapes:
                text = f"model.{key}={[*stated[key]]}: that of none of its inputs, {inputs}"
                raise UsageProblem(f"{self.__name__}: {text}")

    @cached_property
    def _recipe(self) -> Any:
        """The first recipe whose model can be called, on the CPU; None unless it is to be small.

        Raises:
            UsageProblem: none can be.
        """
        if not self.section.shrink:
            return None
        reason = "it stays large"
        for recipe in self.recipes:
            with aside():
                try:
                    with suppress(Exception), torch.device("meta"):  # without its memory
                        trial, _ = self.construct(recipe)
                        if sum(p.numel() for p in trial.parameters()) > SHRUNK_PARAMETERS:
                            continue
                    module, _ = self.construct(recipe)
                    inputs = self.infer_inputs(module, is_small=recipe is not None)
                    reason = failure(module, inputs)
                except UsageProblem:
                    raise
                except Exception as error:  # whatever a library raises on sizes that do not fit
                    reason = reason_of(error)
            if not reason:
                return recipe
        raise UsageProblem(
            f"{self.__name__} cannot be shrunk: {reason}; state sizes by model.init (--init), or "
            "inputs that fit"
        )

    def _without_gradient(self, module: nn.Module) -> Sequence[str]:
        """Parameters that the loss does not reach: of a pooler, of masks, of an encoder not called.

        Found by a step of two samples: of a small model on the CPU, else of a copy of the `module`
        without data. None are where it fails. What bears the name of a reached one, but for
        numbers, may be reached by other samples: an expert.
        """
        with aside(), suppress(Exception), ExitStack() as contexts:
            if self._recipe is not None:
                trial, _ = self.construct(self._recipe)
            else:
                contexts.enter_context(next(module.parameters()).device)
                contexts.enter_context(FakeTensorMode())
                trial = fake_copy(module)
            self.loss_of(trial.train(), self.batch(2)).backward()
            named = {n: p for n, p in trial.named_parameters() if p.requires_grad}
            reached = {re.sub(r"\d+", "", n) for n, p in named.items() if p.grad is not None}
            return [n for n in named if re.sub(r"\d+", "", n) not in reached]
        return ()

    @property
    def inputs(self) -> Inputs:
        """Inputs of the model, which is built for that if it has not been."""
        if self._inputs is None:
            self.build()
        assert self._inputs is not None
        return self._inputs

    def description(self, module: nn.Module) -> str:
        """Parameters, sizes if it is shrunken, inputs, and which parameters are not trained."""
        parts = [f"{sum(p.numel() for p in module.parameters()):,} parameters"]
        if self.section.shrink:
            sizes = ", ".join(f"{key}={value}" for key, value in self._sizes.items())
            parts.append(f"shrunk: {sizes}" if sizes else "not shrunk: nothing of it can be cut")
        parts.append(f"inputs {self.inputs}")
        if self._untrained:
            parts.append(f"not trained: {listed(self._untrained, 1)}")
        return f"{self.__name__}: {'; '.join(parts)}"

    def batch(self, samples: int, *, labelled: bool = True) -> dict[str, Tensor]:
        """Random inputs of so many samples, and labels, from torch's generator."""
        parts = {**self.inputs.arguments, **(self.inputs.labels if labelled else {})}
        return {name: value.draw(samples) for name, value in parts.items()}

    def synthetic_batch(
        self, size: int, *, device: torch.device, generator: torch.Generator | None = None
    ) -> Batch:
        """Random inputs, and labels as targets, drawn on the CPU: the same for every device."""
        seed = 0 if generator is None else generator.initial_seed()
        on_cpu = torch.Generator().manual_seed(seed)
        inputs, labels = (
            {name: self._moved(part.draw(size, on_cpu), device) for name, part in parts.items()}
            for parts in (self.inputs.arguments, self.inputs.labels)
        )
        return Batch(inputs, labels)  # type: ignore[arg-type] # nested, as its own methods read it

    def _moved(self, tensor: Tensor, device: torch.device) -> Tensor:
        layout = self.memory_format if tensor.ndim == 4 else torch.preserve_format
        return tensor.to(device, memory_format=layout)

    def forward(self, module: nn.Module, batch: Batch) -> Any:
        """The model's output."""
        inputs: Any = batch.inputs
        return module(**inputs)

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        """The loss, in fp32 at least unless the model computes it."""
        inputs: Any
        labels: Any
        inputs, labels, _ = batch
        return self.loss_of(module, {**inputs, **labels})

    def loss_of(self, model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        """The loss of a :meth:`batch`."""
        output = model(**batch)
        if self.inputs.labels:
            return loss_in(output)
        floats = [torch.atleast_1d(t) for t in tensors_in(output) if t.is_floating_point()]
        if not floats:
            raise UsageProblem(
                f"{self.__name__}: its output has no real floats to train on; leave out --train"
            )
        # Of zeros, or of a normalised layer, the mean square has no gradient.
        far = [t.float() - torch.linspace(-1, 1, t.shape[-1], device=t.device) for t in floats]
        return torch.stack([t.square().mean() for t in far]).mean()


def load(model: str, **keys: Any) -> SourceWorkload:
    """A `model` by its name, for ``gpubench.train`` and ``gpubench.infer``.

    ``hf:``, ``timm:`` and ``torchvision:`` stand before names of these libraries; one's own class
    or function is ``package.module:Name``. `keys` are those of section ``model``: ``shrink=True``.

    Raises:
        Misuse: a key is none, or of the wrong type.
    """
    name, source = split_name(model)
    workload: type[SourceWorkload] = catalog.load("workloads", name)
    fields = workload.Section.model_fields
    try:
        section = workload.Section(name=name, source=source, **keys)
    except ValidationError as error:
        key, text = error.errors()[0]["loc"][0], error.errors()[0]["msg"]
        raise Misuse(f"load: {key}{suggest(str(key), fields)}: {text}") from None
    return workload(section)


def failure(module: nn.Module, inputs: Inputs) -> str:
    """Why a forward pass of two samples on the CPU fails; empty if it does not."""
    arguments = {name: value.draw(2) for name, value in inputs.arguments.items()}
    try:
        with torch.no_grad():
            module.eval()(**arguments)
    except Exception as error:
        return reason_of(error)
    return ""


def reason_of(error: Exception) -> str:
    """Type and text of a library's `error`, in a line."""
    return shorten(f"{type(error).__name__}: {error_text(error)}", 300, placeholder=" …")


@contextmanager
def aside() -> Iterator[None]:
    """Context of a trial on the CPU: afterwards no random number of the model's has been drawn."""
    of_python, of_numpy = random.getstate(), np.random.get_state()
    try:
        with torch.device("cpu"), torch.random.fork_rng(devices=()):
            yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)


def shrunk(module: nn.Module, recipe: Mapping[str, Any] | None) -> Built:
    """A `module` built by a `recipe`, less all but two of equal layers in a row; None: as it is."""
    return module, {} if recipe is None else {**recipe, **dict(_shortened(module))}


def _shortened(module: nn.Module) -> Iterator[tuple[str, str]]:
    """Leave two of equal layers in a row, in place; how many there were, by the list's name."""
    for name, part in module.named_modules():
        if not isinstance(part, nn.Sequential | nn.ModuleList):
            continue
        kinds = [_kind(layer) for layer in part]
        kept = [
            layer for n, layer in enumerate(part) if kinds[n - LAYERS : n + 1] != [kinds[n]] * 3
        ]
        if len(kept) < len(part):
            yield name, f"{len(kept)} of {len(part)} layers"
            while len(part):
                del part[-1]
            part.extend(kept)


def _kind(layer: nn.Module) -> tuple[object, ...]:
    """What equal layers have in common."""
    return type(layer), *(p.shape for p in layer.parameters()), *map(type, layer.modules())
