"""Training steps of two classifiers."""

import pytest


@pytest.mark.gpubench(config="digits")
def test_digits_train(gpubench, trainer):
    """A step of a model that comes with gpubench, after four epochs."""
    gpubench(trainer)


def test_classifier_train(gpubench, precision):
    """A step of the project's own model."""
    import torch
    from classifier import Classifier

    batch = torch.randn(32, 1, 8, 8), torch.randint(10, (32,))
    gpubench.train(Classifier(), batch, torch.nn.functional.cross_entropy)
