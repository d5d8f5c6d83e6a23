"""The residual networks of He et al. 2015 (https://arxiv.org/abs/1512.03385), from transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from gpubench_plugin.configuration.section import PositiveInt
from gpubench_plugin.errors import Unsupported
from gpubench_plugin.workloads._images import ImageClassifier, ImageSection

if TYPE_CHECKING:
    from torch import Tensor, nn

    from gpubench_plugin.workloads.base import Batch


FourStages = tuple[PositiveInt, PositiveInt, PositiveInt, PositiveInt]


class ResNetSection(ImageSection):
    """The widths of the stages; their depths and blocks are what a ResNet's number stands for."""

    embedding_size: PositiveInt = Field(64, description="Channels of the stem")
    hidden_sizes: FourStages = Field(description="Channels of the four stages")


class ResNet(ImageClassifier[ResNetSection]):
    """A ResNet; a subclass states its blocks."""

    Section: ClassVar[type[ResNetSection]] = ResNetSection
    convolutional = True
    depths: ClassVar[tuple[int, int, int, int]]
    layer_type: ClassVar[Literal["basic", "bottleneck"]]

    def build(self) -> nn.Module:
        """``ResNetForImageClassification`` with random weights."""
        try:
            from transformers import ResNetConfig, ResNetForImageClassification
        except ImportError as error:
            raise Unsupported(
                f"{self.section.name} comes from transformers, which cannot be imported "
                f"({error}): pip install 'pytest-gpubench[suite]'"
            ) from error
        config = ResNetConfig(
            num_channels=self.channels,
            embedding_size=self.section.embedding_size,
            hidden_sizes=self.section.hidden_sizes,
            depths=self.depths,
            layer_type=self.layer_type,
            num_labels=self.section.classes,
        )
        module: nn.Module = ResNetForImageClassification(config)
        return module

    def forward(self, module: nn.Module, batch: Batch) -> Tensor:
        """Logits, N×classes."""
        logits: Tensor = module(pixel_values=batch.inputs).logits
        return logits
