"""Diffusion inference with its denoising steps split over the ranks.

Every rank holds the whole U-Net and takes a range of steps; what travels is a latent image.
"""

from gpubench_plugin.workloads.diffusion.workload import Diffusion

__all__ = ["Diffusion"]
