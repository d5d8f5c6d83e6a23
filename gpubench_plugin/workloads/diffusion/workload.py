"""U-Net of the diffusion pipeline: Stable Diffusion's, or a small stand-in."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, silu

from gpubench_plugin.core.errors import Unsupported
from gpubench_plugin.workloads.unet_cond import UNetCond, UNetCondSection


class UNetOutput(NamedTuple):
    """Output of a diffusers U-Net."""

    sample: Tensor


class DummyUNet(nn.Module):
    """Cheap stand-in for diffusers' U-Net: one level of `width` channels, one skip connection."""

    def __init__(self, *, channels: int, width: int, text_width: int):
        super().__init__()
        self.inward = nn.Conv2d(channels, width, 3, padding=1)
        self.down = nn.Conv2d(width, width, 3, stride=2, padding=1)
        self.middle = nn.Conv2d(width, width, 3, padding=1)
        self.condition = nn.Linear(text_width + 1, width)
        self.up = nn.Conv2d(width, width, 3, padding=1)
        self.outward = nn.Conv2d(2 * width, channels, 3, padding=1)

    def forward(
        self, sample: Tensor, timestep: Tensor, encoder_hidden_states: Tensor
    ) -> UNetOutput:
        """Noise in the latents `sample`, N×C×H×W with even H and W.

        `timestep` is one number or N numbers; `encoder_hidden_states` is the text,
        N×tokens×features.
        """
        text = encoder_hidden_states.mean(dim=1)
        # 1000: the schedulers' training time steps.
        time = timestep.expand(len(sample)).to(text.dtype)[:, None] / 1000
        condition = self.condition(torch.cat([text, time], dim=1))
        fine_features = silu(self.inward(sample))
        coarse_features = silu(self.down(fine_features) + condition[:, :, None, None])
        coarse_features = silu(self.middle(coarse_features))
        upsampled = silu(self.up(interpolate(coarse_features, scale_factor=2.0)))
        return UNetOutput(self.outward(torch.cat([fine_features, upsampled], dim=1)))


class DiffusionModelSection(UNetCondSection):
    """Network of Stable Diffusion 1.5, or the stand-in."""

    unet: Literal["dummy", "conditional"] = "conditional"
    """Denoising network: a small stand-in, or diffusers' U-Net"""


class Diffusion(UNetCond):
    """Diffusion pipeline: denoising by a conditional U-Net, or a small stand-in, over ranks."""

    Section = DiffusionModelSection
    section: DiffusionModelSection

    def build(self) -> nn.Module:
        """The network with random weights."""
        if self.section.unet == "conditional":
            return super().build()
        if self.section.activation_checkpointing:
            raise Unsupported(
                "model.activation_checkpointing: not supported by the dummy; see model.unet"
            )
        return DummyUNet(
            channels=self.channels,
            width=2 * self.section.hidden_sizes[-1],
            text_width=self.section.text_width,
        )
