"""Training steps of a multilayer perceptron."""

import pytest


@pytest.mark.gpubench(config="mlp", ranks="any")
def test_mlp_train(gpubench, trainer):
    """Forward, loss, backward and optimizer of an MLP on digits."""
    gpubench(trainer.step, samples=trainer.samples_per_step)
