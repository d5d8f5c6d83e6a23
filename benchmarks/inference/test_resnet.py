"""Forward passes of residual networks, in both memory formats."""

import pytest

memory_formats = pytest.mark.parametrize(
    "memory_format",
    [
        pytest.param("channels_last", marks=pytest.mark.gpubench_set("model.channels_last=true")),
        pytest.param("contiguous", marks=pytest.mark.gpubench_set("model.channels_last=false")),
    ],
)


@memory_formats
@pytest.mark.gpubench(config="resnet18")
def test_resnet18_infer(gpubench, inference, memory_format):
    """Logits of ResNet-18 for one batch of images."""
    gpubench(inference.step, samples=inference.samples_per_step)


@memory_formats
@pytest.mark.gpubench(config="resnet50")
def test_resnet50_infer(gpubench, inference, memory_format):
    """Logits of ResNet-50 for one batch of images."""
    gpubench(inference.step, samples=inference.samples_per_step)
