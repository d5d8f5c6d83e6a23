"""The keys of diffusion inference with its steps split over ranks."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gpubench_plugin.configuration.section import PositiveInt, Section


class DiffusionSection(Section):
    """A pipeline of denoising steps."""

    denoising_steps: PositiveInt = Field(
        default=8, description="Denoising steps asked of the scheduler"
    )
    samples: PositiveInt = Field(default=1, description="Samples that follow each other")
    scheduler: str = Field(default="ddim", description="The noise scheduler")
    unet: Literal["dummy", "conditional"] = Field(
        default="conditional", description="What denoises: a small stand-in, or diffusers' UNet"
    )
    remainder: Literal["refuse", "first", "last"] = Field(
        default="refuse", description="Steps that do not divide: refused, or on that rank"
    )
