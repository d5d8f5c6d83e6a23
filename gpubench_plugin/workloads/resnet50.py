"""ResNet-50."""

from __future__ import annotations

from pydantic import Field

from gpubench_plugin.workloads._resnet import FourStages, ResNet, ResNetSection


class ResNet50Section(ResNetSection):
    """Widths of the stages."""

    hidden_sizes: FourStages = Field(
        (256, 512, 1024, 2048), description="Channels of the four stages"
    )


class ResNet50(ResNet):
    """Bottleneck blocks: 1×1, 3×3 and 1×1 convolutions, a quarter as wide in the middle."""

    Section = ResNet50Section
    depths = (3, 4, 6, 3)
    layer_type = "bottleneck"
