"""The small convolutional network."""

from __future__ import annotations

import pytest
import torch

from gpubench_plugin.core.errors import UsageProblem


def test_layers_are_as_configured(make_workload):
    """The tiny preset has two stages, on images of 2×2 behind them."""
    shapes = [tuple(p.shape) for p in make_workload("cnn", "tiny").build().parameters()]
    assert shapes == [
        (32, 1, 3, 3),
        (32,),
        (32,),
        (64, 32, 3, 3),
        (64,),
        (64,),
        (64, 256),
        (64,),
        (10, 64),
        (10,),
    ]


def test_full_preset_has_36_million_parameters(make_workload):
    """The full preset has four stages, the last of them 512 wide on 8×8."""
    with torch.device("meta"):
        module = make_workload("cnn", "full").build()
    assert sum(p.numel() for p in module.parameters()) == 36_131_240


def test_image_too_small_for_its_stages(make_workload):
    """Every stage halves the image: too many of them are refused with the least size."""
    with pytest.raises(
        UsageProblem, match=r"model: image_size=3 is too small; allowed: at least 4"
    ):
        make_workload("cnn", "tiny", "model.image_size=3")


def test_images_on_a_device_are_not_waited_for(make_workload):
    """Off the CPU no value of a batch is looked at: here there is none."""
    images = torch.zeros(2, 1, 8, 8, device="meta")
    labels = torch.zeros(2, dtype=torch.int64, device="meta")
    batch = make_workload("cnn", "tiny").from_images(images, labels)
    assert batch.inputs.device.type == "meta"


def test_colours_become_grey(make_workload):
    """A model of grey images takes the mean of the three channels."""
    images = torch.rand(2, 3, 8, 8)
    batch = make_workload("cnn", "tiny").from_images(images, torch.tensor([0, 1]))
    torch.testing.assert_close(batch.inputs, images.mean(1, keepdim=True))
