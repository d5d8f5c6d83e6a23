"""Training steps of U-Nets that find noise in images, in both memory formats."""

import pytest

from gpubench_plugin.config.marks import (
    ACCUMULATED,
    CHANNELS_LAST,
    CHECKPOINTED,
    COMPILED,
    FSDP2,
    FULL,
    PLAIN,
    param_variants,
)

# On a CPU channels_last is slower here, and on CUDA lost at every group normalisation; a step of
# FSDP2 takes half a second.
unet_variants = param_variants(
    PLAIN, CHANNELS_LAST & FULL, COMPILED, ACCUMULATED, CHECKPOINTED, FSDP2 & FULL
)


@unet_variants
@pytest.mark.gpubench_full("amp", "fp16-true")
@pytest.mark.gpubench(config="unet2d", ranks="any")
def test_unet2d_train(gpubench, trainer, variant):
    """Forward, loss, backward and optimizer of the U-Net of DDPM."""
    gpubench(trainer)


@unet_variants
@pytest.mark.gpubench_full("amp", "fp16-true")
@pytest.mark.gpubench(config="unet-cond", ranks="any")
def test_unet_cond_train(gpubench, trainer, variant):
    """Forward, loss, backward and optimizer of the U-Net of Stable Diffusion."""
    gpubench(trainer)
