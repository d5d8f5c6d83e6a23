"""Training steps of a small model made of our mixture-of-experts layer."""

import pytest


@pytest.mark.parametrize(
    "experts",
    [
        pytest.param("grouped", marks=pytest.mark.gpubench_set("model.expert_kind=grouped")),
        pytest.param(
            "sequential",
            marks=[
                pytest.mark.gpubench_set("model.expert_kind=sequential"),
                pytest.mark.gpubench_full(),
            ],
        ),
    ],
)
@pytest.mark.gpubench_full("amp", "fp16-true", "bf16-true")
@pytest.mark.gpubench(config="moe", ranks="any")
def test_moe_layer_train(gpubench, trainer, experts):
    """Forward, loss, backward and optimizer; every rank has all experts."""
    gpubench(trainer)
