"""The U-Net that a pipeline of denoising steps runs: Stable Diffusion's, or a small stand-in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from gpubench_plugin.errors import Unsupported
from gpubench_plugin.workloads.diffusion.dummy_unet import DummyUNet
from gpubench_plugin.workloads.unet_cond import UNetCond, UNetCondSection

if TYPE_CHECKING:
    from torch import nn


class DiffusionModelSection(UNetCondSection):
    """The network of Stable Diffusion 1.5, unless it is the stand-in."""

    unet: Literal["dummy", "conditional"] = Field(
        "conditional", description="What denoises: a small stand-in, or diffusers' U-Net"
    )


class Diffusion(UNetCond):
    """``UNet2DConditionModel``, or `DummyUNet` with channels and text of the same sizes."""

    Section = DiffusionModelSection
    section: DiffusionModelSection

    def build(self) -> nn.Module:
        """The network with random weights."""
        if self.section.unet == "conditional":
            return super().build()
        if self.section.activation_checkpointing:
            raise Unsupported("model.activation_checkpointing: the dummy cannot; see model.unet")
        return DummyUNet(
            channels=self.channels,
            width=2 * self.section.hidden_sizes[-1],
            text_width=self.section.text_width,
        )
