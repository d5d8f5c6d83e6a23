"""Forward passes of a multilayer perceptron."""

import pytest

from gpubench_plugin.config.marks import COMPILED, PLAIN, param_variants


@param_variants(PLAIN, COMPILED)
@pytest.mark.gpubench(config="mlp")
def test_mlp_infer(gpubench, inference, variant):
    """Logits of an MLP for one batch of digits."""
    gpubench(inference)
