"""Residual networks of He et al. 2015 (https://arxiv.org/abs/1512.03385), from transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from gpubench_plugin.config import PositiveInt
from gpubench_plugin.workloads._images import ImageClassifier, ImageSection
from gpubench_plugin.workloads._transformers import NEEDS_TRANSFORMERS, from_library

if TYPE_CHECKING:
    from torch import nn


FourStages = tuple[PositiveInt, PositiveInt, PositiveInt, PositiveInt]


class ResNetSection(ImageSection):
    """Widths of the stages; depths and block types depend on the variant."""

    embedding_size: PositiveInt = Field(64, description="Channels of the stem")
    hidden_sizes: FourStages = Field(description="Channels of the four stages")


class ResNet(ImageClassifier[ResNetSection]):
    """A ResNet; subclasses define its blocks."""

    Section: ClassVar[type[ResNetSection]] = ResNetSection
    convolutional = True
    where = NEEDS_TRANSFORMERS
    depths: ClassVar[tuple[int, int, int, int]]
    layer_type: ClassVar[Literal["basic", "bottleneck"]]

    def build(self) -> nn.Module:
        """``ResNetForImageClassification`` with random weights."""
        config_class, model_class = from_library(
            self.section.name, "transformers", "ResNetConfig", "ResNetForImageClassification"
        )
        config = config_class(
            num_channels=self.channels,
            embedding_size=self.section.embedding_size,
            hidden_sizes=self.section.hidden_sizes,
            depths=self.depths,
            layer_type=self.layer_type,
            num_labels=self.section.classes,
        )
        module: nn.Module = model_class(config)
        return module
