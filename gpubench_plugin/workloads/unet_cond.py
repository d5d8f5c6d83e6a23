"""Text-conditioned U-Net of Stable Diffusion 1 (https://arxiv.org/abs/2112.10752)."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from gpubench_plugin.config.sections import PositiveInt
from gpubench_plugin.workloads._diffusion import Denoiser, UNetSection, Width
from gpubench_plugin.workloads.base import Batch


class UNetCondSection(UNetSection):
    """Network of Stable Diffusion 1.5, and its text embeddings."""

    multiples: ClassVar = {"hidden_sizes": "heads"}

    sample_size: PositiveInt = 64
    """Latent height and width"""
    hidden_sizes: tuple[Width, ...] = (320, 640, 1280, 1280)
    """Channels per level, multiples of 32"""
    attention: tuple[bool, ...] = (True, True, True, False)
    """Cross attention per level"""
    heads: PositiveInt = 8
    """Attention heads; divides hidden_sizes"""
    text_length: PositiveInt = 77
    """Text length in tokens"""
    text_width: PositiveInt = 768
    """Width of the text embeddings"""


class UNetCond(Denoiser[UNetCondSection]):
    """Stable Diffusion's U-Net (``UNet2DConditionModel``) on latents and text embeddings."""

    Section: ClassVar[type[UNetCondSection]] = UNetCondSection
    channels = 4
    library_class = "UNet2DConditionModel"
    attention_prefix = "CrossAttn"
    beta_schedule = {  # noqa: RUF012 # Stable Diffusion's
        "beta_schedule": "scaled_linear",
        "beta_start": 0.00085,
        "beta_end": 0.012,
    }

    def own_arguments(self) -> dict[str, Any]:
        """Cross attention with the same number of heads on every level."""
        return {
            "cross_attention_dim": self.section.text_width,
            # diffusers' misnomer for the number of heads.
            "attention_head_dim": self.section.heads,
        }

    def synthetic_batch(
        self, size: int, *, device: torch.device, generator: torch.Generator | None = None
    ) -> Batch:
        """Noised latents; `context` is time steps and random text embeddings."""
        batch = super().synthetic_batch(size, device=device, generator=generator)
        shape = (size, self.section.text_length, self.section.text_width)
        text = torch.randn(shape, device=device, generator=generator)
        return batch._replace(context=(*batch.context, text))
