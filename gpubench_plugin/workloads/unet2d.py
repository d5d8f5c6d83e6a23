"""U-Net of Ho et al. 2020 (https://arxiv.org/abs/2006.11239) for image denoising."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from gpubench_plugin.config.sections import PositiveInt
from gpubench_plugin.workloads._diffusion import Denoiser, UNetSection, Width
from gpubench_plugin.workloads.base import Batch


class UNet2DSection(UNetSection):
    """Network for CIFAR-10 from the paper's appendix B."""

    sample_size: PositiveInt = 32
    """Image height and width in pixels"""
    hidden_sizes: tuple[Width, ...] = (128, 256, 256, 256)
    """Channels per level, multiples of 32"""
    attention: tuple[bool, ...] = (False, True, False, False)
    """Attention per level"""


class UNet2D(Denoiser[UNet2DSection]):
    """Diffusion U-Net (``UNet2DModel``) that denoises RGB images."""

    Section = UNet2DSection
    channels = 3
    library_class = "UNet2DModel"
    attention_prefix = "Attn"
    beta_schedule = {}  # noqa: RUF012 # diffusers' defaults are the paper's

    def own_arguments(self) -> dict[str, Any]:
        """Single-head attention, as in the paper."""
        return {"attention_head_dim": None}

    def from_images(self, images: Tensor, labels: Tensor) -> Batch:
        """Images resized, scaled to [-1, 1], and noised with a fixed seed; labels are dropped."""
        side = self.section.sample_size
        resized = interpolate(images, size=(side, side), mode="bilinear", align_corners=False)
        coloured = resized.expand(-1, self.channels, -1, -1) * 2 - 1
        generator = torch.Generator(images.device).manual_seed(0)
        return self.noised(coloured, generator)
