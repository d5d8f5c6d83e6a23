"""Training of a model that comes with gpubench, configured here."""

import pytest


@pytest.mark.gpubench(config="classifier", ranks="any")
def test_classifier_train(gpubench, trainer):
    """One optimizer step; the loss is checked before, untimed."""
    gpubench(trainer)
