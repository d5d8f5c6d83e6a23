"""Training steps of residual networks, in both memory formats."""

import pytest

memory_formats = pytest.mark.parametrize(
    "memory_format",
    [
        pytest.param("channels_last", marks=pytest.mark.gpubench_set("model.channels_last=true")),
        pytest.param("contiguous", marks=pytest.mark.gpubench_set("model.channels_last=false")),
    ],
)


@memory_formats
@pytest.mark.gpubench(config="resnet18", ranks="any")
def test_resnet18_train(gpubench, trainer, memory_format):
    """Forward, loss, backward and optimizer of ResNet-18."""
    gpubench(trainer.step, samples=trainer.samples_per_step)


@memory_formats
@pytest.mark.gpubench(config="resnet50", ranks="any")
def test_resnet50_train(gpubench, trainer, memory_format):
    """Forward, loss, backward and optimizer of ResNet-50."""
    gpubench(trainer.step, samples=trainer.samples_per_step)
