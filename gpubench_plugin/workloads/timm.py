"""Models of timm with random weights: ``timm:resnet50``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpubench_plugin.core.errors import UsageProblem, suggest
from gpubench_plugin.workloads._source import SHRUNK_SIDE, Input, Inputs, SourceWorkload, shrunk
from gpubench_plugin.workloads._transformers import from_library

if TYPE_CHECKING:
    from torch import nn


class Timm(SourceWorkload):
    """Any image model of timm with random weights, by its name."""

    kind = "timm:"
    where = "with timm"
    # Arguments of constructors.
    recipes = (
        {"img_size": SHRUNK_SIDE, "depth": 2, "embed_dim": 64, "num_heads": 4},
        {"depths": (1, 1, 1, 1), "dims": (16, 32, 64, 128)},
        {"layers": (1, 1, 1, 1), "channels": (16, 32, 64, 128)},
        {"img_size": SHRUNK_SIDE},
        {},
        None,
    )

    def construct(self, recipe: Mapping[str, Any] | None) -> tuple[nn.Module, Mapping[str, object]]:
        """The model as its constructor makes it with ``model.init``."""
        create, list_models = from_library(self.__name__, "timm", "create_model", "list_models")
        name = self.section.source
        if name.partition(".")[0] not in (known := list_models()):
            raise UsageProblem(f"timm:{name}: no model of timm{suggest(name, known)}")
        keys = {**(recipe or {}), **self.section.init}
        return shrunk(create(name, pretrained=False, **keys), recipe)

    def infer_inputs(self, module: nn.Module, *, is_small: bool) -> Inputs:
        """Images of the size in its ``default_cfg``."""
        channels, *sides = getattr(module, "default_cfg", {}).get("input_size", (3, 224, 224))
        if is_small:
            sides = [SHRUNK_SIDE] * len(sides)
        return Inputs({"x": Input(self.section.input_shape or (channels, *sides))})
