"""Training steps of Llama."""

import pytest

from gpubench_plugin.config.marks import COMPILED, TRAINING, Variant, param_variants

BLOCKS = Variant(name="blocks", assignments=("model.compile_scope=blocks",))
STEP = Variant(name="step", assignments=("model.compile_scope=step",))


@param_variants(*TRAINING, COMPILED & BLOCKS, COMPILED & STEP)
@pytest.mark.gpubench_full("amp", "fp16-true")
@pytest.mark.gpubench(config="llama", ranks="any")
def test_llama_train(gpubench, trainer, variant):
    """Forward, loss, backward and optimizer of Llama on synthetic text."""
    gpubench(trainer)
