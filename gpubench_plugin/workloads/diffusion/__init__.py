"""Diffusion inference with denoising steps distributed over ranks.

Every rank holds the whole U-Net and takes a range of steps; what travels is a latent image.
"""

from typing import TYPE_CHECKING

from gpubench_plugin import lazy_names
from gpubench_plugin.workloads.diffusion.workload import Diffusion

if TYPE_CHECKING:
    from gpubench_plugin.workloads.diffusion.pipeline import (
        DenoisingPipeline,
        build_pipeline,
        ideal_speed_up,
    )
    from gpubench_plugin.workloads.diffusion.schedulers import (
        REMAINDERS,
        SPLIT_SAFE,
        NoiseSchedule,
        steps_of,
    )
    from gpubench_plugin.workloads.diffusion.transport import LENGTH, Header, Transport

__getattr__ = lazy_names(__name__)
