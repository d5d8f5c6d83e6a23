"""ResNet-50, of bottleneck blocks."""

from __future__ import annotations

from pydantic import field_validator

from gpubench_plugin.workloads._resnet import (
    BOTTLENECK,
    Bottleneck,
    FourStages,
    ResNet,
    ResNetSection,
)


class ResNet50Section(ResNetSection):
    """Widths of the stages."""

    hidden_sizes: FourStages = (256, 512, 1024, 2048)
    """Channels of the four stages"""

    @field_validator("hidden_sizes")
    @classmethod
    def _wide_enough(cls, sizes: FourStages) -> FourStages:
        """Refuse stages without a channel in the middle of their blocks."""
        if min(sizes) < BOTTLENECK:
            raise ValueError(
                f"{min(sizes)} leaves no channel in the middle of a block, a quarter as wide; "
                f"allowed: {BOTTLENECK} or more"
            )
        return sizes


class ResNet50(ResNet):
    """ResNet-50 image classifier: bottleneck blocks of 1×1, 3×3 and 1×1 convolutions."""

    Section = ResNet50Section
    depths = (3, 4, 6, 3)
    block = Bottleneck
