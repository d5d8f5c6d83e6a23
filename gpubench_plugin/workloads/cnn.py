"""A small convolutional network for small grey images."""

from __future__ import annotations

from itertools import pairwise
from typing import Self

from pydantic import model_validator
from torch import nn

from gpubench_plugin.config.sections import PositiveInt
from gpubench_plugin.workloads._images import ImageClassifier, SmallImageSection


class CNNSection(SmallImageSection):
    """Widths of the stages."""

    stage_channels: tuple[PositiveInt, ...] = (32, 64)
    """Channels per stage"""
    hidden_size: PositiveInt = 64
    """Width of the hidden linear layer"""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        stages = len(self.stage_channels)
        if not self.image_size >> stages:
            raise ValueError(
                f"image_size={self.image_size} is too small; allowed: at least {1 << stages}, "
                f"since each of the {stages} stages of stage_channels halves it"
            )
        return self


class CNN(ImageClassifier[CNNSection]):
    """Small convolutional image classifier: 3×3 convolutions, batch norm, max pooling."""

    Section = CNNSection
    channels = 1
    convolutional = True

    def build(self) -> nn.Module:
        """The layers, from pixels to classes."""
        widths = (self.channels, *self.section.stage_channels)
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(widths):
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)]
            layers += [nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]
        hidden = self.section.hidden_size
        side = self.section.image_size >> len(self.section.stage_channels)
        layers += [nn.Flatten(), nn.Linear(widths[-1] * side**2, hidden), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(hidden, self.section.classes))
