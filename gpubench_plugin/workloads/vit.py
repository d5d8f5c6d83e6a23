"""Vision transformer of Dosovitskiy et al. 2021 (https://arxiv.org/abs/2010.11929)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gpubench_plugin.config.sections import PositiveInt
from gpubench_plugin.workloads._images import ImageClassifier, ImageSection
from gpubench_plugin.workloads._transformers import NEEDS_TRANSFORMERS, drawn, from_library

if TYPE_CHECKING:
    from torch import nn


class ViTSection(ImageSection):
    """Depth, width and patches of the encoder, with feed-forward layers four times as wide."""

    multiples: ClassVar = {"width": "heads", "image_size": "patch_size"}

    layers: PositiveInt = 12
    """Encoder layers"""
    width: PositiveInt = 768
    """Model width; a multiple of heads"""
    heads: PositiveInt = 12
    """Attention heads"""
    patch_size: PositiveInt = 16
    """Patch height and width in pixels; divides image_size"""


class ViT(ImageClassifier[ViTSection]):
    """Vision transformer (ViT) image classifier: a convolution embeds the patches."""

    Section = ViTSection
    convolutional = True
    where = NEEDS_TRANSFORMERS
    checkpoints_activations = True

    def build(self) -> nn.Module:
        """Encoder and classifier with random weights, without dropout."""
        section = self.section
        config_class, model_class = from_library(
            section.name, "transformers", "ViTConfig", "ViTForImageClassification"
        )
        config = config_class(
            image_size=section.image_size,
            patch_size=section.patch_size,
            num_channels=self.channels,
            hidden_size=section.width,
            num_hidden_layers=section.layers,
            num_attention_heads=section.heads,
            intermediate_size=4 * section.width,
            num_labels=section.classes,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        return drawn(model_class, config, section, section.name)
