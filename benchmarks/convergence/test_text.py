"""Training on the characters of a play until those held out are predicted well."""

import pytest


@pytest.mark.gpubench(config="convergence-text-llama", ranks="any")
@pytest.mark.precision("fp32", "tf32", "bf16", "bf16-true", "amp")
@pytest.mark.gpubench_full("bf16-true", "amp")
def test_text_llama(gpubench, convergence):
    """A Llama of two layers."""
    gpubench(convergence, setup=convergence.restart)
