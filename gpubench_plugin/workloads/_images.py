"""Base of image classifiers: data and loss."""

from __future__ import annotations

from typing import ClassVar, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, interpolate

from gpubench_plugin.config.sections import ModelSection, PositiveInt
from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.workloads.base import Batch, Workload


class ImageSection(ModelSection):
    """Image size and number of classes."""

    image_size: PositiveInt = 224
    """Image height and width in pixels"""
    classes: PositiveInt = 1000
    """Number of classes"""


class SmallImageSection(ImageSection):
    """Size and classes of the bundled digits."""

    image_size: PositiveInt = 8
    """Image height and width in pixels"""
    classes: PositiveInt = 10
    """Number of classes"""


S = TypeVar("S", bound=ImageSection)


class ImageClassifier(Workload[S]):
    """A workload on square images with one class each."""

    channels: ClassVar[int] = 3
    classifies = True

    def synthetic_batch(
        self, size: int, *, device: torch.device, generator: torch.Generator | None = None
    ) -> Batch:
        """Gaussian images, N×C×H×W, with random classes."""
        side = self.section.image_size
        images = torch.randn(size, self.channels, side, side, device=device, generator=generator)
        classes = torch.randint(self.section.classes, (size,), device=device, generator=generator)
        return Batch(images.contiguous(memory_format=self.memory_format), classes)

    def from_images(self, images: Tensor, labels: Tensor) -> Batch:
        """Resize images bilinearly to the model's size, and convert between grey and colour.

        Labels are checked on the CPU only, or every batch would synchronize.
        """
        class_count = int(labels.max()) + 1 if labels.device.type == "cpu" else 0
        if class_count > self.section.classes:
            raise UsageProblem(
                f"model.classes={self.section.classes} is too small; the images have "
                f"{class_count} classes"
            )
        if self.channels == 1:
            images = images.mean(1, keepdim=True)
        side = self.section.image_size
        resized = interpolate(images, size=(side, side), mode="bilinear", align_corners=False)
        coloured = resized.expand(-1, self.channels, -1, -1)
        return Batch(coloured.contiguous(memory_format=self.memory_format), labels)

    def forward(self, module: nn.Module, batch: Batch) -> Tensor:
        """Logits, N×classes: the output, or its attribute as in transformers."""
        output = module(batch.inputs)
        logits: Tensor = getattr(output, "logits", output)
        return logits

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        """Mean cross entropy in fp32, whatever the precision of the logits."""
        return cross_entropy(self.forward(module, batch).float(), batch.targets)
