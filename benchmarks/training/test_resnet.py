"""Training steps of residual networks, in both memory formats."""

import pytest

from gpubench_plugin.config import convolutional_training_variants


@convolutional_training_variants
@pytest.mark.gpubench(config="resnet18", ranks="any")
def test_resnet18_train(gpubench, trainer, variant):
    """Forward, loss, backward and optimizer of ResNet-18."""
    gpubench(trainer)


@convolutional_training_variants
@pytest.mark.gpubench(config="resnet50", ranks="any")
def test_resnet50_train(gpubench, trainer, variant):
    """Forward, loss, backward and optimizer of ResNet-50."""
    gpubench(trainer)
