"""Forward passes of residual networks, in both memory formats and at several batch sizes."""

import pytest

from gpubench_plugin.config.marks import (
    CHANNELS_LAST,
    CONTIGUOUS,
    MOST_SAMPLES,
    ONE_SAMPLE,
    SOME_SAMPLES,
    param_variants,
)


@param_variants(CHANNELS_LAST, CONTIGUOUS, argument="memory_format")
@pytest.mark.gpubench(config="resnet18")
def test_resnet18_infer(gpubench, inference, memory_format):
    """Logits of ResNet-18 for one batch of images."""
    gpubench(inference)


@param_variants(
    CHANNELS_LAST,
    CONTIGUOUS,
    CHANNELS_LAST & ONE_SAMPLE,
    CHANNELS_LAST & SOME_SAMPLES,
    CHANNELS_LAST & MOST_SAMPLES,
)
@pytest.mark.gpubench(config="resnet50")
def test_resnet50_infer(gpubench, inference, variant):
    """Logits of ResNet-50 for one batch of images."""
    gpubench(inference)
