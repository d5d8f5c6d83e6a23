"""Training steps of GPT-2."""

import pytest

from gpubench_plugin.config.marks import training_variants


@training_variants
@pytest.mark.gpubench_full("amp", "fp16-true")
@pytest.mark.gpubench(config="gpt2", ranks="any")
def test_gpt2_train(gpubench, trainer, variant):
    """Forward, loss, backward and optimizer of GPT-2 on synthetic text."""
    gpubench(trainer)
