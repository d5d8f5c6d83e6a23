"""Multilayer perceptron, the smallest trainable model."""

from __future__ import annotations

from itertools import pairwise

from torch import nn

from gpubench_plugin.config.sections import PositiveInt
from gpubench_plugin.workloads._images import ImageClassifier, ImageSection


class MLPSection(ImageSection):
    """Widths of the layers."""

    image_size: PositiveInt = 8
    """Image height and width in pixels"""
    classes: PositiveInt = 10
    """Number of classes"""
    hidden_sizes: tuple[PositiveInt, ...] = (128, 128)
    """Widths of the hidden layers"""


class MLP(ImageClassifier[MLPSection]):
    """Multilayer perceptron: linear layers with ReLU that classify grey images."""

    Section = MLPSection
    channels = 1

    def build(self) -> nn.Module:
        """The layers, from pixels through the hidden sizes to classes."""
        section = self.section
        widths = [section.image_size**2, *section.hidden_sizes, section.classes]
        layers: list[nn.Module] = [nn.Flatten()]
        for inputs, outputs in pairwise(widths):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        return nn.Sequential(*layers[:-1])
