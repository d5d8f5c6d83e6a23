"""Models of torchvision with random weights: ``torchvision:resnet50``."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from gpubench_plugin.core.errors import UsageProblem, suggest
from gpubench_plugin.workloads._source import SHRUNK_SIDE, Input, Inputs, SourceWorkload, shrunk
from gpubench_plugin.workloads._transformers import from_library

if TYPE_CHECKING:
    from torch import nn

_FRAMES: Final = 16
"""Of a clip, as in the recipes of torchvision."""


class Torchvision(SourceWorkload):
    """Any model of torchvision with random weights, by its name."""

    kind = "torchvision:"
    where = "with torchvision"
    recipes = ({"image_size": SHRUNK_SIDE}, {"width_mult": 0.25}, {}, None)

    def construct(self, recipe: Mapping[str, Any] | None) -> tuple[nn.Module, Mapping[str, object]]:
        """The model as its constructor makes it with ``model.init``."""
        get, builder, list_models = from_library(
            self.__name__, "torchvision.models", "get_model", "get_model_builder", "list_models"
        )
        name = self.section.source
        if name not in (known := list_models()):
            raise UsageProblem(f"torchvision:{name}: no model of torchvision{suggest(name, known)}")
        # Those of the backbone are downloaded unless told.
        weights = [key for key in inspect.signature(builder(name)).parameters if "weights" in key]
        keys = {**dict.fromkeys(weights), **(recipe or {}), **self.section.init}
        return shrunk(get(name, **keys), recipe)

    def infer_inputs(self, module: nn.Module, *, is_small: bool) -> Inputs:
        """Images or clips of the size that its published weights are evaluated with."""
        (weights_of,) = from_library(self.__name__, "torchvision.models", "get_model_weights")
        kind = type(module).__module__
        if ".detection." in kind:
            raise UsageProblem(
                f"{self.__name__}: a detector takes lists of images, which have no batch; measure "
                "it from a test: gpubench(step, samples=…)"
            )
        keywords = getattr(next(iter(weights_of(self.section.source))).transforms, "keywords", {})
        side = SHRUNK_SIDE if is_small else keywords.get("crop_size", 224)
        height, width = side if isinstance(side, tuple) else (side, side)
        frames = (_FRAMES,) if ".video." in kind else ()
        shape = self.section.input_shape or (3, *frames, height, width)
        return Inputs({next(iter(inspect.signature(module.forward).parameters)): Input(shape)})
