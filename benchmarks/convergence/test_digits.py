"""Training on handwritten digits until nearly all of those held out are recognised."""

import pytest


@pytest.mark.gpubench(config="convergence-digits-mlp", ranks="any")
@pytest.mark.precision("fp32", "tf32", "bf16", "bf16-true", "amp")
@pytest.mark.gpubench_full("bf16-true", "amp")
def test_digits_mlp(gpubench, convergence):
    """A multilayer perceptron, to 97%."""
    gpubench(convergence, setup=convergence.restart)


@pytest.mark.gpubench(config="convergence-digits-cnn", ranks="any")
@pytest.mark.precision("fp32", "tf32", "bf16", "bf16-true", "amp")
@pytest.mark.gpubench_full("bf16-true", "amp")
def test_digits_cnn(gpubench, convergence):
    """A convolutional network, to 98%."""
    gpubench(convergence, setup=convergence.restart)
