"""Training steps of residual networks, in both memory formats."""

import pytest

from gpubench_plugin.config.marks import (
    CHANNELS_LAST,
    COMPILED,
    CONVOLUTIONAL_TRAINING,
    Variant,
    convolutional_training_variants,
    param_variants,
)

# Four times the memory of the full preset, whose batch is a quarter.
LARGE_BATCH = Variant(
    name="b1024", assignments=("training.batch_size=1024",), preset="full", needs_memory_gib=128
)


@convolutional_training_variants
@pytest.mark.gpubench(config="resnet18", ranks="any")
def test_resnet18_train(gpubench, trainer, variant):
    """Forward, loss, backward and optimizer of ResNet-18."""
    gpubench(trainer)


@param_variants(*CONVOLUTIONAL_TRAINING, CHANNELS_LAST & COMPILED & LARGE_BATCH)
@pytest.mark.gpubench(config="resnet50", ranks="any")
def test_resnet50_train(gpubench, trainer, variant):
    """Forward, loss, backward and optimizer of ResNet-50."""
    gpubench(trainer)
