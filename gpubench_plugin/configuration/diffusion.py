"""The keys of diffusion inference with its steps split over ranks."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gpubench_plugin.configuration.section import PositiveFloat, PositiveInt, Section


class DiffusionSection(Section):
    """A pipeline of denoising steps."""

    denoising_steps: PositiveInt = Field(
        default=8, description="Denoising steps asked of the scheduler"
    )
    samples: PositiveInt = Field(default=1, description="Samples that follow each other")
    scheduler: str = Field(
        default="ddim", description="The noise scheduler, one whose steps can be split"
    )
    remainder: Literal["refuse", "first", "last", "spread"] = Field(
        default="refuse",
        description="Steps that do not divide: refused, on that rank, or on the first few",
    )
    receive_timeout_s: PositiveFloat = Field(
        default=300.0, description="A message that does not come for so long fails the benchmark"
    )
