"""Training steps of a vision transformer."""

import pytest

from gpubench_plugin.config.marks import training_variants


@training_variants
@pytest.mark.gpubench_full("amp", "fp16-true")
@pytest.mark.gpubench(config="vit", ranks="any")
def test_vit_train(gpubench, trainer, variant):
    """Forward, loss, backward and optimizer of a vision transformer on images."""
    gpubench(trainer)
