"""Training steps of Llama."""

import pytest

from gpubench_plugin.config.marks import COMPILED_BLOCKS, COMPILED_STEP, TRAINING, param_variants


@param_variants(*TRAINING, COMPILED_BLOCKS, COMPILED_STEP)
@pytest.mark.gpubench_full("amp", "fp16-true")
@pytest.mark.gpubench(config="llama", ranks="any")
def test_llama_train(gpubench, trainer, variant):
    """Forward, loss, backward and optimizer of Llama on synthetic text."""
    gpubench(trainer)
