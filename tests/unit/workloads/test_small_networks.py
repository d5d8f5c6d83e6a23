"""The small networks: perceptron, convolutions, regression."""

from __future__ import annotations

import pytest
import torch

from gpubench_plugin.core.errors import UsageProblem

SHAPES = {
    "mlp": [(128, 64), (128,), (128, 128), (128,), (10, 128), (10,)],
    "regression": [(64, 10), (64,), (1, 64), (1,)],
    # Two stages, on images of 2×2 behind them.
    "cnn": [
        *((32, 1, 3, 3), (32,), (32,), (64, 32, 3, 3), (64,), (64,)),
        *((64, 256), (64,), (10, 64), (10,)),
    ],
}


@pytest.mark.parametrize(("name", "shapes"), SHAPES.items())
def test_layers_are_as_configured(name, shapes, make_workload):
    """The tiny preset's parameters in order."""
    found = [tuple(p.shape) for p in make_workload(name, "tiny").build().parameters()]
    assert found == shapes


@pytest.mark.parametrize(
    ("name", "parameters"), [("mlp", 150_823_912), ("cnn", 36_131_240), ("regression", 142_639_105)]
)
def test_full_preset_has_the_parameters(name, parameters, make_workload):
    """Of the perceptron, for one, 1024-8192-8192-8192-1000."""
    with torch.device("meta"):
        module = make_workload(name, "full").build()
    assert sum(p.numel() for p in module.parameters()) == parameters


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


def test_images_of_its_size_stay_as_they_are(make_workload):
    """Grey 8×8 images are the tiny preset's inputs, pixel for pixel."""
    images, labels = torch.rand(3, 1, 8, 8), torch.tensor([1, 2, 3])
    batch = make_workload("mlp", "tiny").from_images(images, labels)
    assert batch.inputs.equal(images)
    assert batch.targets.equal(labels)


def test_other_features_are_refused(make_workload):
    """A table with other features than the model's is refused with both numbers."""
    workload = make_workload("regression", "tiny")
    with pytest.raises(UsageProblem, match=r"model\.features=10, but the table's rows have 3"):
        workload.from_table(torch.zeros(2, 3), torch.zeros(2))


def test_loss_is_the_mean_squared_error(make_workload):
    """One number per row, compared with one target per row."""
    workload = make_workload("regression", "tiny")
    module = workload.build()
    batch = workload.from_table(torch.randn(5, 10), torch.randn(5))
    expected = (module(batch.inputs).squeeze(1) - batch.targets).square().mean()
    torch.testing.assert_close(workload.loss(module, batch), expected)
    assert workload.forward(module, batch).shape == (5,)
