"""The multilayer perceptron."""

from __future__ import annotations

import torch


def test_layers_are_as_configured(make_workload):
    """The tiny preset is 64-128-128-10."""
    weights = [tuple(p.shape) for p in make_workload("mlp", "tiny").build().parameters()]
    assert weights == [(128, 64), (128,), (128, 128), (128,), (10, 128), (10,)]


def test_full_preset_has_150_million_parameters(make_workload):
    """The widened preset is 1024-8192-8192-8192-1000."""
    with torch.device("meta"):
        module = make_workload("mlp", "full").build()
    assert sum(p.numel() for p in module.parameters()) == 150_823_912


def test_images_of_its_size_stay_as_they_are(make_workload):
    """Grey 8×8 images are the tiny preset's inputs, pixel for pixel."""
    images, labels = torch.rand(3, 1, 8, 8), torch.tensor([1, 2, 3])
    batch = make_workload("mlp", "tiny").from_images(images, labels)
    assert batch.inputs.equal(images)
    assert batch.targets.equal(labels)
