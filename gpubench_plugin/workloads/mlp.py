"""Multilayer perceptron, the smallest trainable model."""

from __future__ import annotations

from torch import nn

from gpubench_plugin.config.sections import PositiveInt
from gpubench_plugin.workloads._images import ImageClassifier, SmallImageSection
from gpubench_plugin.workloads.base import dense_layers


class MLPSection(SmallImageSection):
    """Widths of the layers."""

    hidden_sizes: tuple[PositiveInt, ...] = (128, 128)
    """Widths of the hidden layers"""


class MLP(ImageClassifier[MLPSection]):
    """Multilayer perceptron: linear layers with ReLU that classify grey images."""

    Section = MLPSection
    channels = 1

    def build(self) -> nn.Module:
        """The layers, from pixels through the hidden sizes to classes."""
        section = self.section
        layers = dense_layers(section.image_size**2, *section.hidden_sizes, section.classes)
        return nn.Sequential(nn.Flatten(), *layers)
