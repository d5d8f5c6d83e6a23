"""ResNet-18, of basic blocks."""

from __future__ import annotations

from gpubench_plugin.workloads._resnet import BasicBlock, FourStages, ResNet, ResNetSection


class ResNet18Section(ResNetSection):
    """Widths of the stages."""

    hidden_sizes: FourStages = (64, 128, 256, 512)
    """Channels of the four stages"""


class ResNet18(ResNet):
    """ResNet-18 image classifier: two basic blocks (two 3×3 convolutions) per stage."""

    Section = ResNet18Section
    depths = (2, 2, 2, 2)
    block = BasicBlock
