"""ResNet-50, of bottleneck blocks."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from gpubench_plugin.workloads._resnet import BOTTLENECK, Bottleneck, ResNet, ResNetSection

Width = Annotated[int, Field(ge=BOTTLENECK)]
"""Channels of a stage: in the middle of its blocks are a quarter of them."""


class ResNet50Section(ResNetSection):
    """Widths of the stages."""

    hidden_sizes: tuple[Width, Width, Width, Width] = (256, 512, 1024, 2048)
    """Channels of the four stages"""


class ResNet50(ResNet):
    """ResNet-50 image classifier: bottleneck blocks of 1×1, 3×3 and 1×1 convolutions."""

    Section = ResNet50Section
    depths = (3, 4, 6, 3)
    block = Bottleneck
