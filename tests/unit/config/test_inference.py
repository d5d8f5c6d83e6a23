"""The sizes of inference."""

from __future__ import annotations

import pytest

from gpubench_plugin.config.sections import InferenceSection, TrainingSection
from gpubench_plugin.core.errors import Unsupported


@pytest.mark.parametrize(
    ("keys", "samples"),
    [
        ({}, 8),
        ({"batch_size": 1}, 1),
        ({"batch_size": "max"}, 8),
        ({"batch_size": "max", "largest_batch_size": 64}, 64),
        ({"batch_size": 32, "largest_batch_size": 64}, 32),
    ],
)
def test_samples_are_those_given_the_largest_or_those_of_training(keys, samples):
    """A number stands for itself, max for the largest, and nothing for the batch of training."""
    assert samples == InferenceSection(**keys).samples(TrainingSection(batch_size=8))


@pytest.mark.parametrize("keys", [{}, {"batch_size": "max"}])
def test_a_batch_to_be_fitted_to_training_is_none_of_inference(keys):
    """Where the size would be that of training, the message says which key to set."""
    with pytest.raises(Unsupported, match=r"state a number, inference\.batch_size=N"):
        InferenceSection(**keys).samples(TrainingSection(batch_size="auto"))


def test_a_batch_that_nothing_has_fitted_has_no_number():
    """Who asks for the samples of ``auto`` is told for which benchmarks it is fitted."""
    with pytest.raises(Unsupported, match="fitted only for benchmarks with the fixture trainer"):
        assert TrainingSection(batch_size="auto").samples
    assert TrainingSection(batch_size="auto").with_samples(5).samples == 5
    assert InferenceSection(batch_size=4).samples(TrainingSection(batch_size="auto")) == 4
