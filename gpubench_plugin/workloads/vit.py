"""The vision transformer of Dosovitskiy et al. 2021 (https://arxiv.org/abs/2010.11929)."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Self

from pydantic import Field, model_validator

from gpubench_plugin.config import PositiveInt
from gpubench_plugin.workloads._images import ImageClassifier, ImageSection
from gpubench_plugin.workloads._transformers import (
    NEEDS_TRANSFORMERS,
    from_library,
    recompute_activations,
)

if TYPE_CHECKING:
    from torch import nn


class ViTSection(ImageSection):
    """The encoder: its depth, width and patches. The feed-forward layers are four times as wide."""

    layers: PositiveInt = Field(12, description="Layers of the encoder")
    width: PositiveInt = Field(768, description="Features of a patch; a multiple of heads")
    heads: PositiveInt = Field(12, description="Heads of attention")
    patch_size: PositiveInt = Field(
        16, description="Height and width of a patch in pixels; divides image_size"
    )

    @model_validator(mode="after")
    def _divides(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is no multiple of heads {self.heads}")
        if self.image_size % self.patch_size:
            raise ValueError(
                f"image_size {self.image_size} is no multiple of patch_size {self.patch_size}"
            )
        return self


class ViT(ImageClassifier[ViTSection]):
    """``ViTForImageClassification``; only the layer that makes patches is a convolution."""

    Section = ViTSection
    convolutional = True
    where = NEEDS_TRANSFORMERS
    checkpoints_activations = True
    _draws_weights = True

    def without_data(self) -> Self:
        """The model's weights stay as they are: drawing them looks at what was drawn."""
        made = super().without_data()
        made._draws_weights = False
        return made

    def build(self) -> nn.Module:
        """The encoder and its classifier with random weights, without dropout."""
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
        with self._drawing():
            module: nn.Module = model_class(config)
        if section.activation_checkpointing:
            recompute_activations(module)
        return module

    def _drawing(self) -> AbstractContextManager[None]:
        if self._draws_weights:
            return nullcontext()
        (without,) = from_library(
            self.section.name, "transformers.initialization", "no_init_weights"
        )
        context: AbstractContextManager[None] = without()
        return context
