"""Diffusion inference with denoising steps distributed over ranks.

Every rank holds the whole U-Net and takes a range of steps; what travels is a latent image.
"""

from gpubench_plugin.workloads.diffusion.workload import Diffusion
