"""The keys of diffusion inference with its steps split over ranks."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field, field_validator

from gpubench_plugin.config.section import PositiveFloat, PositiveInt, Section
from gpubench_plugin.errors import nearest

SCHEDULERS: Final = {
    "ddim": "DDIMScheduler",
    "ddpm": "DDPMScheduler",
    "deis": "DEISMultistepScheduler",
    "dpmsolver-multistep": "DPMSolverMultistepScheduler",
    "dpmsolver-singlestep": "DPMSolverSinglestepScheduler",
    "euler": "EulerDiscreteScheduler",
    "euler-ancestral": "EulerAncestralDiscreteScheduler",
    "flow-match-euler": "FlowMatchEulerDiscreteScheduler",
    "heun": "HeunDiscreteScheduler",
    "ipndm": "IPNDMScheduler",
    "lcm": "LCMScheduler",
    "lms": "LMSDiscreteScheduler",
    "pndm": "PNDMScheduler",
    "sasolver": "SASolverScheduler",
    "unipc": "UniPCMultistepScheduler",
}
"""Noise schedulers by their names here, with their classes in diffusers; not all can be split."""


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

    @field_validator("scheduler")
    @classmethod
    def _known(cls, name: str) -> str:
        """The scheduler's name here, where it has that of its class in diffusers, too."""
        for known, library_class in SCHEDULERS.items():
            if name in (known, library_class):
                return known
        choices = SCHEDULERS if name == name.lower() else SCHEDULERS.values()
        raise ValueError(f"unknown {name!r}{nearest(name, choices)}; allowed: {', '.join(choices)}")
