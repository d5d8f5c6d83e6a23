"""Residual networks of He et al. 2015 (https://arxiv.org/abs/1512.03385), in torch alone.

They are of version 1.5, which halves the image in the 3×3 convolution of a bottleneck instead of
the 1×1 before it: https://catalog.ngc.nvidia.com/orgs/nvidia/resources/resnet_50_v1_5_for_pytorch.
Parameters and buffers have torchvision's names and shapes, so that its checkpoints fit:
https://docs.pytorch.org/vision/stable/models/resnet.html
"""

from __future__ import annotations

from typing import ClassVar, Final

from torch import Tensor, nn

from gpubench_plugin.config.sections import PositiveInt
from gpubench_plugin.workloads._images import ImageClassifier, ImageSection

FourStages = tuple[PositiveInt, PositiveInt, PositiveInt, PositiveInt]

BOTTLENECK: Final = 4
"""Output channels of a bottleneck over those of its middle: He et al., table 1."""


class ResNetSection(ImageSection):
    """Widths of the stages; depths and block types depend on the variant."""

    embedding_size: PositiveInt = 64
    """Channels of the stem"""
    hidden_sizes: FourStages
    """Channels of the four stages"""


class Block(nn.Module):
    """A residual block: ``relu(layers(x) + shortcut(x))``, N×C×H×W.

    The shortcut is the input itself where its shape stays, else a 1×1 convolution. Sums and ReLUs
    overwrite their inputs, which no backward pass reads.
    """

    downsample: nn.Sequential | None

    def shortcut(self, images: Tensor) -> Tensor:
        """The images, in the shape of the block's output."""
        return images if self.downsample is None else self.downsample(images)


class BasicBlock(Block):
    """Two 3×3 convolutions beside the shortcut, as in ResNet-18."""

    def __init__(self, inputs: int, outputs: int, *, stride: int):
        super().__init__()
        self.conv1 = _convolution(inputs, outputs, kernel=3, stride=stride)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = _convolution(outputs, outputs, kernel=3)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = _downsample(inputs, outputs, stride=stride)

    def forward(self, images: Tensor) -> Tensor:
        """The block's output for `images`."""
        hidden = self.bn1(self.conv1(images)).relu_()
        output: Tensor = self.bn2(self.conv2(hidden)).add_(self.shortcut(images)).relu_()
        return output


class Bottleneck(Block):
    """1×1, 3×3 and 1×1 convolutions, a quarter as wide in the middle."""

    def __init__(self, inputs: int, outputs: int, *, stride: int):
        super().__init__()
        middle = outputs // BOTTLENECK
        self.conv1 = _convolution(inputs, middle, kernel=1)
        self.bn1 = nn.BatchNorm2d(middle)
        self.conv2 = _convolution(middle, middle, kernel=3, stride=stride)
        self.bn2 = nn.BatchNorm2d(middle)
        self.conv3 = _convolution(middle, outputs, kernel=1)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample = _downsample(inputs, outputs, stride=stride)

    def forward(self, images: Tensor) -> Tensor:
        """The block's output for `images`."""
        hidden = self.bn1(self.conv1(images)).relu_()
        hidden = self.bn2(self.conv2(hidden)).relu_()
        output: Tensor = self.bn3(self.conv3(hidden)).add_(self.shortcut(images)).relu_()
        return output


class ResidualNetwork(nn.Module):
    """Images N×C×H×W to logits N×classes: a stem, four stages of blocks, a linear layer.

    `widths` are the channels after the stem and each stage, `depths` the stages' blocks.
    """

    def __init__(
        self,
        block: type[Block],
        *,
        channels: int,
        widths: tuple[int, ...],
        depths: tuple[int, ...],
        classes: int,
    ):
        super().__init__()
        self.conv1 = _convolution(channels, widths[0], kernel=7, stride=2)
        self.bn1 = nn.BatchNorm2d(widths[0])
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        self.layer1 = _stage(block, *widths[0:2], stride=1, depth=depths[0])
        self.layer2 = _stage(block, *widths[1:3], stride=2, depth=depths[1])
        self.layer3 = _stage(block, *widths[2:4], stride=2, depth=depths[2])
        self.layer4 = _stage(block, *widths[3:5], stride=2, depth=depths[3])
        self.fc = nn.Linear(widths[4], classes)
        # From N(0, 2 / (outputs · kernel area)), as He et al. 2015, section 2.2, for the backward
        # pass (https://arxiv.org/abs/1502.01852), and torchvision. Other layers keep torch's
        # initialisation: normalizations scale by one.
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """Logits of the `images`, N×classes."""
        hidden = self.maxpool(self.bn1(self.conv1(images)).relu_())
        hidden = self.layer4(self.layer3(self.layer2(self.layer1(hidden))))
        logits: Tensor = self.fc(hidden.mean((2, 3)))
        return logits


def _stage(
    block: type[Block], inputs: int, outputs: int, *, stride: int, depth: int
) -> nn.Sequential:
    later_blocks = (block(outputs, outputs, stride=1) for _ in range(depth - 1))
    return nn.Sequential(block(inputs, outputs, stride=stride), *later_blocks)


def _downsample(inputs: int, outputs: int, *, stride: int) -> nn.Sequential | None:
    """The convolution of a shortcut; None where the shape stays."""
    if stride == 1 and inputs == outputs:
        return None
    return nn.Sequential(
        _convolution(inputs, outputs, kernel=1, stride=stride), nn.BatchNorm2d(outputs)
    )


def _convolution(inputs: int, outputs: int, *, kernel: int, stride: int = 1) -> nn.Conv2d:
    """Convolution of odd size without bias, as a normalization follows; stride 1 keeps the size."""
    return nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)


class ResNet(ImageClassifier[ResNetSection]):
    """A residual network; subclasses define its blocks."""

    Section: ClassVar[type[ResNetSection]] = ResNetSection
    convolutional = True
    depths: ClassVar[tuple[int, int, int, int]]
    block: ClassVar[type[Block]]

    def build(self) -> nn.Module:
        """The network with random weights."""
        section = self.section
        return ResidualNetwork(
            self.block,
            channels=self.channels,
            widths=(section.embedding_size, *section.hidden_sizes),
            depths=self.depths,
            classes=section.classes,
        )
