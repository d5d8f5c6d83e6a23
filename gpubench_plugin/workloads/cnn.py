"""A small convolutional network for small grey images."""

from __future__ import annotations

from itertools import pairwise

from pydantic import Field
from torch import nn

from gpubench_plugin.config.sections import ModelSection, PositiveInt
from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.workloads._images import ImageClassifier, ImageSection


class CNNSection(ImageSection):
    """Widths of the stages."""

    image_size: PositiveInt = Field(8, description="Image height and width in pixels")
    classes: PositiveInt = Field(10, description="Number of classes")
    stage_channels: tuple[PositiveInt, ...] = Field((32, 64), description="Channels per stage")
    hidden_size: PositiveInt = Field(64, description="Width of the hidden linear layer")


class CNN(ImageClassifier[CNNSection]):
    """Small convolutional image classifier: 3×3 convolutions, batch norm, max pooling.

    Raises:
        UsageProblem: the image is too small for its stages.
    """

    Section = CNNSection
    channels = 1
    convolutional = True

    def __init__(self, section: CNNSection):
        super().__init__(section)
        if reason := self.refusal(section):
            raise UsageProblem(reason)
        self._side = section.image_size >> len(section.stage_channels)

    @classmethod
    def refusal(cls, section: ModelSection) -> str:
        """Reason if the image is too small for its stages; empty otherwise."""
        assert isinstance(section, CNNSection)
        stages = len(section.stage_channels)
        if section.image_size >> stages:
            return ""
        return (
            f"model.image_size={section.image_size} is too small; allowed: at least "
            f"{1 << stages}, since each of the {stages} stages of model.stage_channels halves it"
        )

    def build(self) -> nn.Module:
        """The layers, from pixels to classes."""
        widths = (self.channels, *self.section.stage_channels)
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(widths):
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)]
            layers += [nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]
        hidden = self.section.hidden_size
        layers += [nn.Flatten(), nn.Linear(widths[-1] * self._side**2, hidden), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(hidden, self.section.classes))
