"""Where a training step waits for its device: nowhere, with a fused optimizer."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.hot_path import Reads
from tests.support.presets import preset_of, trainer_of
from tests.support.shipped import shipped


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("precision", ["fp32", "bf16", "amp"])
@pytest.mark.parametrize("name", sorted(shipped("workloads")))
def test_a_training_step_waits_for_nothing(name: str, precision: str) -> None:
    """Forward and backward pass, scaler, clipping and fused update read no value."""
    overrides = ("training.fused=true", "training.gradient_clipping=1.0")
    trainer = trainer_of(preset_of(name, "tiny", *overrides, precision__name=precision))
    trainer.step()  # sets up the optimizer's state
    with Reads() as reads:
        trainer.step()
    assert +reads.counts == Counter()


def test_a_scaler_waits_for_an_optimizer_that_is_not_fused() -> None:
    """Once per step it reads whether a gradient overflowed."""
    trainer = trainer_of(preset_of("mlp", "tiny", "training.fused=false", precision__name="amp"))
    trainer.step()
    with Reads() as reads:
        trainer.step()
    assert +reads.counts == {"_local_scalar_dense": 1}
