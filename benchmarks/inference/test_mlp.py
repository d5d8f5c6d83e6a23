"""Forward passes of a multilayer perceptron."""

import pytest


@pytest.mark.gpubench(config="mlp")
def test_mlp_infer(gpubench, inference):
    """Logits of an MLP for one batch of digits."""
    gpubench(inference.step, samples=inference.samples_per_step)
