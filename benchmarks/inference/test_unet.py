"""Denoising steps of a U-Net: iterations per second."""

import pytest

from gpubench_plugin.config.marks import CHANNELS_LAST, FULL, PLAIN, param_variants


@param_variants(PLAIN, CHANNELS_LAST & FULL)
@pytest.mark.gpubench_full("amp", "fp16-true")
@pytest.mark.gpubench(config="unet-cond")
def test_unet_cond_infer(gpubench, inference, variant):
    """One denoising step of a batch of latent images under a text."""
    gpubench(inference)
