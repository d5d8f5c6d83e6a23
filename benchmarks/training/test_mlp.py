"""Training steps of a multilayer perceptron."""

import pytest

from gpubench_plugin.config.marks import ACCUMULATED, FSDP2, PLAIN, Variant, param_variants

# The one model that is compiled on a CPU, too: others take too long there.
COMPILED = Variant(name="compiled", assignments=("model.compile=default",), ranks=1)


@param_variants(PLAIN, COMPILED, ACCUMULATED, FSDP2)
@pytest.mark.gpubench(config="mlp", ranks="any")
def test_mlp_train(gpubench, trainer, variant):
    """Forward, loss, backward and optimizer of an MLP on digits."""
    gpubench(trainer)
