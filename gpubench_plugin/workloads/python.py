"""Models of a project's own code: ``package.module:Class``, or a function that builds one."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from functools import reduce
from importlib import import_module
from typing import Any, Final

from torch import nn

from gpubench_plugin.core.errors import UsageProblem, error_text, require_returned, suggest
from gpubench_plugin.workloads._source import (
    TOKENS,
    Input,
    Inputs,
    SourceWorkload,
    aside,
    failure,
    shrunk,
)

_SIDES: Final = (224, 32, 28, 64, 8)
"""Sides of images, of which the first is taken that the model can be called with."""


class Python(SourceWorkload):
    """A class or function of the project's own code that builds a model."""

    has_unused = False  # of one's own code it is a mistake
    recipes = ({}, None)

    def construct(self, recipe: Mapping[str, Any] | None) -> tuple[nn.Module, Mapping[str, object]]:
        """What the class or function makes with ``model.init``."""
        source, arguments = self.section.source, self.section.init
        module_name, _, name = source.partition(":")
        try:
            with aside():  # as an import may draw numbers, too
                make: Any = reduce(getattr, name.split("."), import_module(module_name))
            inspect.signature(make).bind(**arguments)
        except (ImportError, AttributeError, SyntaxError) as error:
            hint = suggest(name, dir(error.obj)) if isinstance(error, AttributeError) else ""
            raise UsageProblem(f"{source}: {error_text(error)}{hint}") from error
        except (TypeError, ValueError) as error:
            raise UsageProblem(f"{source}: {error_text(error)}; see model.init (--init)") from error
        return shrunk(require_returned(make(**arguments), nn.Module, source), recipe)

    def infer_inputs(self, module: nn.Module, *, is_small: bool) -> Inputs:
        """Inputs of the first layer, the first that the model can be called with."""
        parameters = inspect.signature(module.forward).parameters.values()
        name = next((p.name for p in parameters if p.default is p.empty), "input")
        section, reason = self.section, "its first layer tells none"
        for value in self._candidates(module):
            inputs = Inputs({name: value})
            if not (reason := failure(module, inputs)):
                return inputs
        if section.input_shape or section.sequence_length:
            raise UsageProblem(f"{section.source}: called with {inputs}, as stated: {reason}")
        raise UsageProblem(
            f"{section.source}: its inputs cannot be inferred: {reason}; state model.input_shape "
            f"(--input) or model.sequence_length (--tokens), or pass a batch, as in "
            f"gpubench.infer(load({section.source!r}), batch)"
        )

    def _candidates(self, module: nn.Module) -> Iterable[Input]:
        if self.section.input_shape:
            return [Input(self.section.input_shape)]
        layers = [m for m in module.modules() if any(True for _ in m.parameters(recurse=False))]
        embedding = next((m for m in layers if isinstance(m, nn.Embedding)), None)
        if (length := self.section.sequence_length) or embedding is not None:
            below = None if embedding is None else embedding.num_embeddings
            return [Input((tokens,), below) for tokens in ([length] if length else (TOKENS, 16))]
        first: Any = next(iter(layers), None)
        if isinstance(first, nn.Conv1d | nn.Conv2d | nn.Conv3d):
            dimensions = len(first.kernel_size)
            sides = _SIDES[dimensions == 3 :]  # a volume of 224³ takes minutes and gigabytes
            return [Input((first.in_channels, *(side,) * dimensions)) for side in sides]
        names = ("in_features", "input_size", "embed_dim", "num_features")
        width = next((size for name in names if (size := getattr(first, name, None))), None)
        return [] if width is None else [Input((width,)), Input((TOKENS, width))]
