"""Training steps of language models with mixtures of experts, from transformers."""

import pytest

from gpubench_plugin.config.marks import (
    ACCUMULATED,
    CHECKPOINTED,
    COMPILED,
    FSDP2,
    FULL,
    PLAIN,
    Variant,
    param_variants,
)

moe_variants = param_variants(
    PLAIN,
    # A loop over the experts instead of one grouped product.
    Variant(name="eager-experts", assignments=("model.experts_implementation=eager",)) & FULL,
    COMPILED,
    ACCUMULATED,
    CHECKPOINTED,
    FSDP2,
)


@moe_variants
@pytest.mark.gpubench_full("amp", "fp16-true")
@pytest.mark.gpubench(config="mixtral", ranks="any")
def test_mixtral_train(gpubench, trainer, variant):
    """Forward, loss with the router's, backward and optimizer of Mixtral."""
    gpubench(trainer)


@moe_variants
@pytest.mark.gpubench_full("amp", "fp16-true")
@pytest.mark.gpubench(config="qwen-moe", ranks="any")
def test_qwen_moe_train(gpubench, trainer, variant):
    """Forward, loss with the router's, backward and optimizer of Qwen3-MoE."""
    gpubench(trainer)
