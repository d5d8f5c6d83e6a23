"""The sizes of inference."""

from __future__ import annotations

import pytest

from gpubench_plugin.config import InferenceSection


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
    assert samples == InferenceSection(**keys).samples(8)
