"""Training steps of BERT."""

import pytest

from gpubench_plugin.config.marks import training_variants


@training_variants
@pytest.mark.gpubench_full("amp", "fp16-true")
@pytest.mark.gpubench(config="bert", ranks="any")
def test_bert_train(gpubench, trainer, variant):
    """Forward, loss, backward and optimizer of BERT on synthetic text, some of them masked."""
    gpubench(trainer)
